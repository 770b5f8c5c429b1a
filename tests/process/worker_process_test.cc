// neuroshard-worker as an operator meets it: start, refusals, drain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

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
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/worker.yaml"));
  const TempDir dir;
  const ProcessResult faulty =
      Worker({"--config", dir.Write("worker.yaml", "cpu: {devices: -1}\nlisten_address: x\n")});
  EXPECT_EQ(faulty.exit_code, 1);
  EXPECT_THAT(faulty.err, HasSubstr("cpu.devices"));
  EXPECT_THAT(faulty.err, HasSubstr("listen_address"));
}

}  // namespace
}  // namespace neuroshard
