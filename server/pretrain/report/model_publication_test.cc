#include "server/pretrain/report/model_publication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/cost/shard_features.h"
#include "server/networks/model_manifest.h"
#include "server/networks/network_cost_model.h"
#include "server/pretrain/data/measured_problem.h"
#include "server/pretrain/testing/synthetic_records.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SilentObserver final : public TrainingObserver {
 public:
  void OnEpoch(const EpochReport&) override {}
  void OnFinished(const EpochReport&, const std::string&) override {}
  void OnWarning(const std::string& message) override { warnings += message + "\n"; }

  std::string warnings;
};

class ModelPublicationTest : public ::testing::Test {
 protected:
  ModelPublicationTest()
      : root_(fs::path(::testing::TempDir()) /
              fmt::format("publication-{}-{}", ::getpid(),
                          ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(root_);
    config_ = PresetConfig(TrainingPreset::kPerCount);
    config_.optimization.max_epochs = 40;
    config_.comm_optimization.max_epochs = 40;
    config_.table_hidden = {32, 16};
    config_.head_hidden = {16};
    config_.comm_hidden = {16};
    auto comm = SyntheticCommRecords(60, 2);
    const auto few = SyntheticCommRecords(10, 3);
    comm.insert(comm.end(), few.begin(), few.end());
    records_ = *SelectRecords(SyntheticComputeRecords(400), comm, RecordFilter());
  }
  ~ModelPublicationTest() override { fs::remove_all(root_); }

  StatusOr<TrainingOutcome> TryTrain() {
    return TrainModel(records_, config_, nullptr, {&stop_, 1, &observer_, nullptr});
  }
  TrainingOutcome Train() { return *TryTrain(); }
  std::string Path(int version) const { return (root_ / "cpu" / std::to_string(version)).string(); }
  Status Publish(const TrainingOutcome& model, int version, ExistingVersion existing) {
    const auto location = LocateModel(Path(version), existing);
    if (!location.ok()) return location.status();
    return PublishModel(model, *location,
                        DescribeProvenance(records_, config_, "profile.db", 1'795'000'000'000),
                        existing);
  }
  static std::string Read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Names in the model's folder, hidden ones included.
  std::vector<std::string> Versions() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_ / "cpu")) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path root_;
  TrainingConfig config_;
  SelectedRecords records_;
  SilentObserver observer_;
  NeverStop stop_;
};

TEST_F(ModelPublicationTest, AServerPredictsWhatTrainingReported) {
  const TrainingOutcome trained = Train();
  EXPECT_THAT(observer_.warnings, HasSubstr("forward_comm x3: left out: 5 samples"));
  ASSERT_TRUE(Publish(trained, 1, ExistingVersion::kRefuse).ok());
  const auto manifest = ReadModelManifest(Path(1));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto loaded = LoadCostModel(*manifest, Path(1));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const CostModel& model = **loaded;

  EXPECT_TRUE(model.info().properties.splits_compute);
  EXPECT_EQ(model.info().coverage.num_devices, (std::vector<int>{2}));
  EXPECT_EQ(model.info().coverage.global_batch_size, 512);
  EXPECT_EQ(model.info().measured_with.device, "Some CPU");
  const NetworkReport& compute = trained.reports[0];
  const SampleSplit split = SplitSamples(std::ssize(records_.compute), config_.optimization.seed);
  ASSERT_EQ(compute.predicted_ms.size(), split.test.size());
  for (std::size_t i = 0; i < split.test.size(); ++i) {
    std::vector<std::vector<ShardFeatures>> set(1);
    for (const auto& shard : records_.compute[split.test[i]].sample.shards) {
      set[0].push_back(FeaturesOf(shard));
    }
    const ComputeCost cost = model.Bind({})->CostsOfSets(set).front().compute;
    EXPECT_NEAR(cost.total_ms, compute.predicted_ms[i], 1e-4 * compute.predicted_ms[i] + 1e-6);
  }
  const NetworkReport& comm = trained.reports[2];
  ASSERT_EQ(comm.key, "forward_comm.ranks_2");
  const TrainingProblem forward = MakeCommProblem(records_.comm, CommDirection::kForward, 2);
  const std::int64_t first = SplitSamples(forward.num_samples(), 0).test[0];
  std::vector<float> costs(2);
  model.Bind({.num_ranks = 2})
      ->comm()
      .ForwardCosts(std::span(forward.rows).subspan(first * 4, 2),
                    std::span(forward.rows).subspan(first * 4 + 2, 2), costs);
  EXPECT_NEAR(costs[0], comm.predicted_ms[0], 1e-4 * comm.predicted_ms[0] + 1e-6);
  EXPECT_NEAR(costs[1], comm.predicted_ms[1], 1e-4 * comm.predicted_ms[1] + 1e-6);
}

TEST_F(ModelPublicationTest, TheManifestTellsMetricsAndProvenance) {
  ASSERT_TRUE(Publish(Train(), 3, ExistingVersion::kRefuse).ok());
  const auto manifest = ReadModelManifest(Path(3));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->metrics.at("compute.samples"), "40");
  EXPECT_TRUE(manifest->metrics.contains("compute.kendall_tau"));
  EXPECT_TRUE(manifest->metrics.contains("backward_comm.ranks_2.mape_percent"));
  EXPECT_EQ(manifest->provenance.at("store"), "profile.db");
  EXPECT_EQ(manifest->provenance.at("trained_at"), "2026-11-18T11:06:40Z");
  EXPECT_EQ(manifest->provenance.at("worker_git_commits"), "0123abc");
  EXPECT_EQ(manifest->provenance.at("config.loss"), "relative");
  EXPECT_THAT(Read(fs::path(Path(3)) / "REPORT.md"),
              AllOf(HasSubstr("| compute | 320 | 40 |"), HasSubstr("(held_out.csv)")));
  EXPECT_THAT(Read(fs::path(Path(3)) / "held_out.csv"),
              AllOf(HasSubstr("network,measured_ms,predicted_ms\n\"compute\","),
                    HasSubstr("\n\"forward_comm x2\",")));
}

TEST_F(ModelPublicationTest, SameRecordsAndSeedGiveTheSameBytes) {
  config_.optimization.max_epochs = 3;
  config_.comm_optimization.max_epochs = 3;
  ASSERT_TRUE(Publish(Train(), 1, ExistingVersion::kRefuse).ok());
  ASSERT_TRUE(Publish(Train(), 2, ExistingVersion::kRefuse).ok());
  int files = 0;
  for (const auto& entry : fs::directory_iterator(Path(1))) {
    const std::string name = entry.path().filename();
    if (name == "model.yaml" || name == "REPORT.md" || name == "files.sha256")
      continue;  // of their version
    EXPECT_EQ(Read(entry.path()), Read(fs::path(Path(2)) / name)) << name;
    ++files;
  }
  EXPECT_EQ(files, 4);
}

TEST_F(ModelPublicationTest, AnExistingVersionIsKeptUnlessToldOtherwise) {
  config_.optimization.max_epochs = 2;
  config_.comm_optimization.max_epochs = 2;
  const TrainingOutcome model = Train();
  ASSERT_TRUE(Publish(model, 1, ExistingVersion::kRefuse).ok());
  EXPECT_EQ(Publish(model, 1, ExistingVersion::kRefuse).code(), absl::StatusCode::kAlreadyExists);
  std::ofstream(fs::path(Path(1)) / "stale") << "old";
  ASSERT_TRUE(Publish(model, 1, ExistingVersion::kReplace).ok());
  EXPECT_FALSE(fs::exists(fs::path(Path(1)) / "stale"));
  EXPECT_EQ(Versions(), (std::vector<std::string>{"1"}));
}

TEST_F(ModelPublicationTest, AFailureLeavesNothingBehind) {
  config_.optimization.max_epochs = 2;
  config_.comm_optimization.max_epochs = 2;
  TrainingOutcome model = Train();
  model.files.at("compute.safetensors").tensors.at("head.0.bias").values[0] =
      std::numeric_limits<float>::quiet_NaN();
  fs::create_directories(root_ / "cpu");
  EXPECT_FALSE(Publish(model, 1, ExistingVersion::kRefuse).ok());
  EXPECT_TRUE(Versions().empty());
}

TEST_F(ModelPublicationTest, TooFewComputeSamplesAreAnError) {
  records_.compute.resize(19);
  const auto trained = TryTrain();
  EXPECT_EQ(trained.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(trained.status()), HasSubstr("19 compute samples are too few"));
}

TEST_F(ModelPublicationTest, OnlyNameSlashVersionIsAModelDirectory) {
  for (const char* path : {"1", "models/cpu", "models/cpu/01", "models/cpu/0", "models/cpu/-1",
                           "models/cpu/v1", "models/.hidden/1", "models/a b/1", "", "/1"}) {
    EXPECT_EQ(LocateModel(path, ExistingVersion::kRefuse).status().code(),
              absl::StatusCode::kInvalidArgument)
        << path;
  }
  const auto location = LocateModel("models/my-cpu_2.0/12/", ExistingVersion::kRefuse);
  ASSERT_TRUE(location.ok()) << location.status();
  EXPECT_EQ(location->name, "my-cpu_2.0");
  EXPECT_EQ(location->version, 12);
}

TEST_F(ModelPublicationTest, APlaceWhereNothingCanBeWrittenIsFoundBeforeTraining) {
  fs::create_directories(root_);
  std::ofstream(root_ / "file") << "not a folder";
  const auto location = LocateModel(Path(1), ExistingVersion::kRefuse);
  ASSERT_TRUE(location.ok()) << location.status();  // folders that are not there yet can be made
  const auto below = LocateModel(root_ / "file/models/cpu/1", ExistingVersion::kRefuse);
  EXPECT_EQ(below.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(below.status()), HasSubstr("file: cannot be written: Not a directory"));
}

}  // namespace
}  // namespace neuroshard
