// neuroshard-worker as an operator meets it: start, refusals, drain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "client/stub/worker_client.h"
#include "common/base/ip_network.h"
#include "tests/process/servers.h"
#include "tests/process/subprocess.h"
#include "tests/process/temp_dir.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ProcessResult Worker(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), Binary("neuroshard-worker"));
  return RunProcess(arguments);
}

TEST(WorkerProcessTest, ServesOnAPortOfItsChoiceAndDrainsOnSigterm) {
  ServerProcess worker = StartWorker(2);
  EXPECT_THAT(worker.address(), ::testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  worker.process().Signal(SIGTERM);
  const ProcessResult ended = worker.process().Wait();
  EXPECT_EQ(ended.exit_code, 0);
  // Its log says whose kernels and collectives it times.
  EXPECT_THAT(ended.err, AllOf(HasSubstr("neuroshard-cpu"), HasSubstr("neuroshard-tcp")));
}

TEST(WorkerProcessTest, BusyPortIsOneClearError) {
  ServerProcess first = StartWorker(1);
  const ProcessResult second = Worker({"--listen", first.address(), "--metrics", "127.0.0.1:0"});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr(first.address()));
  EXPECT_EQ(second.out, "");
  EXPECT_EQ(first.Stop(), 0);
}

TEST(WorkerProcessTest, WrongCommandLinesAndFiles) {
  EXPECT_EQ(Worker({"--help"}).exit_code, 0);
  EXPECT_EQ(Worker({"--backend", "tpu"}).exit_code, 2);
  const ProcessResult missing = Worker({"--config", "/no/such/worker.yaml"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/worker.yaml"));
  const TempDir dir;
  const ProcessResult faulty =
      Worker({"--config", dir.Write("worker.yaml", "cpu: {devices: -1}\nlisten_address: x\n")});
  EXPECT_EQ(faulty.exit_code, 2);
  EXPECT_THAT(faulty.err, HasSubstr("cpu.devices"));
  EXPECT_THAT(faulty.err, HasSubstr("listen_address"));
}

TEST(WorkerProcessTest, CheckConfigNamesAllFaultsAndStartsNothing) {
  ServerProcess taken = StartWorker(1);
  const TempDir dir;
  const std::string config = dir.Write(
      "worker.yaml", "listen: " + taken.address() + "\nmetrics_listen: " + taken.address() +
                         "\ncpu: {device: 2}\nrpc: {drain_grace_ms: soon}\n");
  // Without --check-config, too: a port that is taken does not hide the other faults.
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--check-config"}}) {
    std::vector<std::string> arguments = {"--config", config};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult faulty = Worker(arguments);
    EXPECT_EQ(faulty.exit_code, 2);
    EXPECT_EQ(faulty.out, "");
    EXPECT_THAT(faulty.err,
                AllOf(HasSubstr("neuroshard-worker: 2 faults\n"),
                      HasSubstr("note: listen: cannot listen on " + taken.address()),
                      HasSubstr("note: metrics_listen: cannot listen on " + taken.address()),
                      HasSubstr("cpu.device: unknown key; did you mean devices?"),
                      HasSubstr("rpc.drain_grace_ms: must be an integer")));
  }
  const ProcessResult good = Worker({"--check-config", "--listen", "127.0.0.1:0", "--metrics", ""});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(good.out, "neuroshard-worker could start with these options\n");
  // The port of a server that is to be restarted is no fault.
  const ProcessResult running =
      Worker({"--check-config", "--listen", taken.address(), "--metrics", ""});
  EXPECT_EQ(running.exit_code, 0) << running.err;
  EXPECT_THAT(running.err, HasSubstr("note: listen: cannot listen on " + taken.address()));
  EXPECT_EQ(taken.Stop(), 0);
}

TEST(WorkerProcessTest, WhatTheStartWouldRefuseIsAFaultOfTheConfiguration) {
  const TempDir dir;
  for (const auto& [text, fault] :
       {std::pair{"backend: cpu\ncpu: {memory_per_device_bytes: 999TiB}\n", "  cpu: "},
        {"collective: {interface: none9}\n", "there is no interface none9 with an IP address"},
        {"collective: {host: 192.0.2.1}\n", "collective.host: 192.0.2.1: Cannot assign"}}) {
    const std::string config = dir.Write("worker.yaml", text);
    const std::vector<std::string> options = {"--config", config, "--listen", "127.0.0.1:0"};
    const ProcessResult started = Worker(options);
    EXPECT_EQ(started.exit_code, 1) << text << started.err;
    std::vector<std::string> checked = options;
    checked.push_back("--check-config");
    const ProcessResult faulty = Worker(checked);
    EXPECT_EQ(faulty.exit_code, 2) << text;
    EXPECT_THAT(faulty.err, HasSubstr(fault));
  }
}

TEST(WorkerProcessTest, AFailedStartIsALineOfTheLog) {
  const TempDir dir;
  const ProcessResult failed = Worker(
      {"--config", dir.Write("worker.yaml", "log_format: json\ncollective: {host: 192.0.2.1}\n"),
       "--listen", "127.0.0.1:0"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, AllOf(::testing::StartsWith("{\"time\":"),
                                HasSubstr("\"event\":\"start_failed\",\"reason\":\"")));
}

TEST(WorkerProcessTest, TwoWorkersOfOneHostNeedOnlyTwoPorts) {
  std::vector<std::unique_ptr<ServerProcess>> workers;
  for (int i = 0; i < 2; ++i) {
    workers.push_back(std::make_unique<ServerProcess>(std::vector<std::string>{
        Binary("neuroshard-worker"), "--cpu-devices", "1", "--listen", "127.0.0.1:0"}));
  }
  std::set<std::string> metrics;
  for (const auto& worker : workers) {
    metrics.insert(*worker->process().WaitForError("metrics_listening address="));
    EXPECT_EQ(worker->Stop(), 0);
  }
  EXPECT_EQ(metrics.size(), 2u);
}

// The processes that a process started and that still run.
std::set<pid_t> ChildrenOf(pid_t parent) {
  std::set<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    // "pid (name) state parent ..."; the name may hold anything.
    std::istringstream rest(line.substr(line.rfind(')') + 1));
    char state = 0;
    pid_t of = 0;
    if (rest >> state >> of && of == parent && state != 'Z') {
      children.insert(std::stoi(entry.path().filename()));
    }
  }
  return children;
}

ComputeSample SmallSample(const std::string& id) {
  ComputeSample sample;
  sample.sample_id = id;
  sample.batch_size = 16;
  sample.shards = {{.table = "t", .rows = 50, .cols = 8, .pooling_factor = 2}};
  sample.shards[0].reuse_histogram[0] = 1;
  return sample;
}

constexpr std::chrono::seconds kSampleDeadline{60};

TEST(WorkerProcessTest, TheDeathOfADevicesProcessEndsItsLeaseAndNothingElse) {
  ServerProcess worker = StartWorker(2);
  const WorkerClient client(worker.address());
  const std::set<pid_t> processes = ChildrenOf(worker.process().pid());
  ASSERT_EQ(processes.size(), 2U) << "one a device";
  std::vector<std::unique_ptr<ComputeStream>> streams;
  for (int device = 0; device < 2; ++device) {
    streams.push_back(client.OpenComputeStream(device, {}));
    ASSERT_TRUE(streams[device]->Measure(SmallSample("before"), kSampleDeadline).ok());
  }
  kill(*processes.begin(), SIGKILL);
  int failed = 0;
  for (auto& stream : streams) {
    const auto record = stream->Measure(SmallSample("after"), kSampleDeadline);
    if (record.ok()) continue;
    ++failed;
    EXPECT_EQ(record.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(Message(record.status()), AllOf(HasSubstr("device"), HasSubstr("SIGKILL")));
  }
  EXPECT_EQ(failed, 1) << "the other device goes on";
  streams.clear();
  for (int device = 0; device < 2; ++device) {
    auto stream = client.OpenComputeStream(device, {});
    // Until the worker has seen the old stream's end, the device is held.
    StatusOr<ComputeMeasurement> record = Unavailable("not asked yet");
    do {
      stream = client.OpenComputeStream(device, {});
      record = stream->Measure(SmallSample("again"), kSampleDeadline);
    } while (absl::IsResourceExhausted(record.status()));
    EXPECT_TRUE(record.ok()) << record.status();
    EXPECT_TRUE(stream->Finish().ok());
  }
  worker.process().Signal(SIGTERM);
  const ProcessResult ended = worker.process().Wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("device_process_died"), HasSubstr("SIGKILL")));
}

TEST(WorkerProcessTest, DevicesProcessesEndWithAWorkerThatIsKilled) {
  ServerProcess worker = StartWorker(2);
  const std::set<pid_t> processes = ChildrenOf(worker.process().pid());
  ASSERT_EQ(processes.size(), 2U);
  worker.process().Signal(SIGKILL);
  EXPECT_EQ(worker.process().Wait().exit_code, 128 + SIGKILL);
  const auto run = [](pid_t pid) {
    return std::filesystem::exists("/proc/" + std::to_string(pid) + "/exe");
  };
  while (std::any_of(processes.begin(), processes.end(), run)) std::this_thread::yield();
}

// A message that is no greeting, from anybody who connects to the port of a group that is being
// connected.
TEST(WorkerProcessTest, AnybodyWhoConnectsToAGroupsPortIsTurnedAway) {
  ServerProcess worker = StartWorker(1);
  const WorkerClient client(worker.address());
  v1::OpenCommGroupRequest request;
  request.set_group_id("g");
  request.set_world_size(2);
  request.set_timeout_ms(1000);
  request.set_idle_timeout_ms(60'000);
  request.add_local_ranks();  // rank 0 on device 0
  const auto group = client.OpenCommGroup(request);
  ASSERT_TRUE(group.ok()) << group.status();
  const std::string own = group->addresses.at(0);
  const std::size_t begin = own.find("127.0.0.1:");
  ASSERT_NE(begin, std::string::npos);
  const SocketAddress port = ParseSocketAddress(own.substr(begin, own.rfind(' ') - begin)).value();
  const auto visit = [&port] {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool connected = connect(fd, &port.get(), port.length) == 0;
    if (connected) {
      const std::string message(148, '\1');
      // Fails where the group ends between the two.
      send(fd, message.data(), message.size(), MSG_NOSIGNAL);
      char byte;
      EXPECT_LE(recv(fd, &byte, 1, 0), 0);
    }
    close(fd);
    return connected;
  };
  EXPECT_FALSE(visit()) << "nobody connects the group yet";
  // The peer never comes; its address is this rank's port with another key.
  std::string peer = own;
  peer.replace(peer.size() - 32, 32, 32, '0');
  std::atomic<bool> over = false;
  std::thread connecting([&] {
    EXPECT_EQ(client.ConnectCommGroup(*group, {own, peer}).code(), absl::StatusCode::kAborted);
    over = true;
  });
  int visits = 0;
  while (!over) visits += visit() ? 1 : 0;
  connecting.join();
  EXPECT_GT(visits, 0);
  EXPECT_FALSE(visit()) << "the group is over";
  const auto info = client.GetWorkerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  ASSERT_EQ(info->devices_size(), 1);
  EXPECT_EQ(info->devices(0).running_job(), "");
  EXPECT_EQ(worker.Stop(), 0);
}

}  // namespace
}  // namespace neuroshard
