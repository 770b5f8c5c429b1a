// Trainings that are stopped, or whose disk is full, and that go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>

#include "server/pretrain/testing/pretrain_fixture.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using TrainingCheckpointTest = PretrainFixture;

// Stops after some looks.
class StopLater final : public StopSignal {
 public:
  explicit StopLater(int looks) : looks_(looks) {}
  bool ShouldStop() const override { return looks_.fetch_sub(1) <= 0; }

 private:
  mutable std::atomic<int> looks_;
};

TEST_F(TrainingCheckpointTest, AnInterruptedTrainingGoesOnToTheSameBytes) {
  FillStore(SyntheticComputeRecords(80), SyntheticCommRecords(40, 2));
  const std::string keys = "max_epochs: 12, members: 2, table_hidden: [8], comm: {max_epochs: 5}";
  Configure(keys + ", learning_curve: true");
  Output(RunTrain, train_);
  train_.model_directory = Path("models/cpu/2");
  // Anywhere: in the middle of compute, of its learning curve, and then of communication.
  for (const int looks : {15, 4, 30, 9}) {
    const StopLater stop(looks);
    CommandContext context = context_;
    context.stop = &stop;
    EXPECT_EQ(RunTrain(train_, context).code(), absl::StatusCode::kCancelled) << looks;
    EXPECT_FALSE(fs::exists(Path("models/cpu/2")));
  }
  Output(RunTrain, train_);
  EXPECT_THAT(Written(err_), HasSubstr("goes on after epoch"));
  for (const char* name : {"compute.safetensors", "comm.safetensors", "learning_curve.csv"}) {
    EXPECT_EQ(Read(std::string("models/cpu/1/") + name), Read(std::string("models/cpu/2/") + name));
  }
  EXPECT_FALSE(fs::exists(Path("models/cpu/.training-2")));

  Configure(keys);
  train_.model_directory = Path("models/cpu/3");
  Output(RunTrain, train_);
  EXPECT_FALSE(fs::exists(Path("models/cpu/3/learning_curve.csv")));
  for (const char* name : {"compute.safetensors", "comm.safetensors"}) {
    EXPECT_EQ(Read(std::string("models/cpu/1/") + name), Read(std::string("models/cpu/3/") + name));
  }
}

// While it lives, the kernel takes so many bytes of a file and refuses the rest, as a disk that
// fills does.
class FullDisk {
 public:
  explicit FullDisk(std::size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const struct rlimit full = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  struct rlimit before_ {};
  void (*handler_)(int);
};

TEST_F(TrainingCheckpointTest, ADiskThatFillsInTheMiddleOfACheckpointLeavesTheLastOne) {
  FillStore(SyntheticComputeRecords(80), {});
  Configure("max_epochs: 12, members: 4, table_hidden: [48, 24]");
  Output(RunTrain, train_);
  train_.model_directory = Path("models/cpu/2");
  const StopLater stop(15);
  CommandContext context = context_;
  context.stop = &stop;
  ASSERT_EQ(RunTrain(train_, context).code(), absl::StatusCode::kCancelled);

  // The only file of its folder: nothing half-written lies beside it.
  const auto checkpoint = [&] {
    std::vector<fs::path> files(fs::directory_iterator(Path("models/cpu/.training-2")), {});
    EXPECT_EQ(files.size(), 1u);
    return files.size() == 1 ? Read(fs::relative(files[0], folder_)) : "";
  };
  const std::string last = checkpoint();
  ASSERT_GT(last.size(), 100'000u);  // all other files that the training writes are smaller
  {
    const FullDisk disk(last.size() / 2);
    const Status status = RunTrain(train_, context_);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(status), AllOf(HasSubstr("File too large"), HasSubstr(".training-2"),
                                       HasSubstr("goes on from the last one")));
  }
  EXPECT_TRUE(checkpoint() == last);
  EXPECT_FALSE(fs::exists(Path("models/cpu/2")));

  Output(RunTrain, train_);
  EXPECT_TRUE(Read("models/cpu/1/compute.safetensors") == Read("models/cpu/2/compute.safetensors"));
  EXPECT_FALSE(fs::exists(Path("models/cpu/.training-2")));
}

TEST_F(TrainingCheckpointTest, ACheckpointThatCannotBeWrittenIsAnError) {
  FillStore(SyntheticComputeRecords(60), {});
  Configure("max_epochs: 2");
  fs::create_directories(Path("models/cpu"));
  std::ofstream(Path("models/cpu/.training-1")) << "in the way";
  const Status status = RunTrain(train_, context_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr(".training-1"));
}

TEST_F(TrainingCheckpointTest, AnInterruptLeavesNoModel) {
  FillStore(SyntheticComputeRecords(60), {});
  ManualStop stop;
  stop.Stop();
  context_.stop = &stop;
  EXPECT_EQ(RunTrain(train_, context_).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(fs::exists(Path("models/cpu/1")));
}

}  // namespace
}  // namespace neuroshard
