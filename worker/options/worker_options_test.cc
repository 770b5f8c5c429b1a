#include "worker/options/worker_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/worker_options_test_" + name;
  std::ofstream(path) << text;
  return path;
}

WorkerCommand Parse(std::vector<const char*> args) {
  args.insert(args.begin(), "neuroshard-worker");
  return ParseWorkerCommandLine(static_cast<int>(args.size()), args.data(),
                                [](const WorkerOptions&) { return absl::OkStatus(); });
}

TEST(WorkerOptionsTest, ShippedFileHoldsTheDefaults) {
  NS_ASSERT_OK_AND_ASSIGN(
      const WorkerOptions options,
      ReadWorkerOptions(std::string(NEUROSHARD_SOURCE_DIR) + "/configs/worker.yaml"));
  const auto logged = [](const WorkerOptions& of) {
    std::ostringstream out;
    LogOptionsInForce(of, *Logger::ToStream(&out));
    return out.str().substr(out.str().find(" options "));
  };
  EXPECT_EQ(logged(options), logged(WorkerOptions{}));
}

TEST(WorkerOptionsTest, FlagsOverrideTheFile) {
  const std::string path = WriteFile("override.yaml",
                                     "listen: 127.0.0.1:7\nmetrics_listen: 127.0.0.1:8\n"
                                     "cpu: {devices: 3, pin_threads: true}\n");
  const WorkerCommand command =
      Parse({"--config", path.c_str(), "--listen", "127.0.0.1:0", "--cpu-devices", "5"});
  EXPECT_FALSE(command.exit_code.has_value());
  EXPECT_EQ(command.options.rpc.listen, "127.0.0.1:0");
  EXPECT_EQ(command.options.metrics_listen, "127.0.0.1:8");
  EXPECT_EQ(command.options.cpu.count, 5);
  EXPECT_TRUE(command.options.cpu.pin_threads);
  EXPECT_EQ(command.options.backend, WorkerBackend::kCpu);
}

TEST(WorkerOptionsTest, BackendIsAutoUnlessCpuDevicesAreAskedFor) {
  EXPECT_EQ(Parse({}).options.backend, WorkerBackend::kAuto);
  EXPECT_EQ(Parse({"--cpu-devices", "2"}).options.backend, WorkerBackend::kCpu);
  EXPECT_EQ(Parse({"--cpu-devices", "2", "--backend", "auto"}).options.backend,
            WorkerBackend::kAuto);
}

TEST(WorkerOptionsTest, ListsEveryFaultOfAFile) {
  const std::string path = WriteFile("faults.yaml",
                                     "backend: tpu\ncpu: {devices: 0, cores: 4}\n"
                                     "compute: {stream_idle_timeout_ms: 1}\n"
                                     "collective: {networks: [10.0.0.0/8, 10.0.0.1/8, here]}\n");
  EXPECT_THAT(
      ReadWorkerOptions(path),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          AllOf(HasSubstr("backend"), HasSubstr("cpu.devices"), HasSubstr("cpu.cores"),
                HasSubstr("compute.stream_idle_timeout_ms"), HasSubstr("collective.networks[1]"),
                HasSubstr("collective.networks[2]"), Not(HasSubstr("collective.networks[0]")))));
}

TEST(WorkerOptionsTest, ExitCodes) {
  EXPECT_EQ(Parse({"--help"}).exit_code, 0);
  EXPECT_EQ(Parse({"--version"}).exit_code, 0);
  EXPECT_EQ(Parse({"--no-such-flag"}).exit_code, 2);
  EXPECT_EQ(Parse({"--backend", "tpu"}).exit_code, 2);
  EXPECT_EQ(Parse({"--cpu-devices", "0"}).exit_code, 2);
  EXPECT_EQ(Parse({"--config", "/no/such/file.yaml"}).exit_code, 2);
  EXPECT_EQ(Parse({"--listen", "nowhere"}).exit_code, 2);
  EXPECT_EQ(Parse({"--check-config", "--listen", "127.0.0.1:0"}).exit_code, 0);
}

}  // namespace
}  // namespace neuroshard
