#include "server/pretrain/pretrain_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/store/profile_store.h"
#include "server/pretrain/testing/synthetic_records.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class PretrainCommandsTest : public testing::Test {
 protected:
  PretrainCommandsTest()
      : folder_(fs::path(testing::TempDir()) /
                fmt::format("pretrain-{}-{}", ::getpid(),
                            testing::UnitTest::GetInstance()->current_test_info()->name())),
        out_(std::tmpfile()),
        err_(std::tmpfile()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    context_ = {out_, err_, ProgressStyle::kLines, &clock_, &stop_, 1'795'000'000'000};
    train_.store = Path("store.db");
    train_.config = Path("config.yaml");
    train_.model_directory = Path("models/cpu/1");
    train_.format = OutputFormat::kJson;
    std::ofstream(train_.config) << "max_epochs: 60\n";
  }
  ~PretrainCommandsTest() override {
    std::fclose(out_);
    std::fclose(err_);
    fs::remove_all(folder_);
  }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  static TimedSeries Series(double ms) {
    TimedSeries series;
    series.samples_ms = {ms};
    series.median_ms = ms;
    return series;
  }

  void FillStore(const std::vector<ComputeRecord>& compute, const std::vector<CommRecord>& comm) {
    const auto store = *ProfileStore::Open(train_.store, StoreMode::kReadWrite);
    std::vector<ComputeSample> compute_samples;
    for (const auto& record : compute) compute_samples.push_back(record.sample);
    const auto compute_sweep = store->BeginComputeSweep({"c", "c", ""}, compute_samples);
    ASSERT_TRUE(compute_sweep.ok()) << compute_sweep.status();
    for (const auto& record : compute) {
      ComputeMeasurement measurement;
      measurement.sample_id = record.sample.sample_id;
      measurement.forward = Series(record.forward_ms);
      measurement.backward = Series(record.backward_ms);
      measurement.environment = record.environment;
      ASSERT_TRUE(store->AddComputeMeasurement(*compute_sweep, measurement).ok());
    }
    std::vector<CommSample> comm_samples;
    for (const auto& record : comm) comm_samples.push_back(record.sample);
    const auto comm_sweep = store->BeginCommSweep({"m", "m", ""}, comm_samples);
    ASSERT_TRUE(comm_sweep.ok()) << comm_sweep.status();
    for (const auto& record : comm) {
      std::vector<CommMeasurement> measurements;
      for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
        CommMeasurement measurement;
        measurement.sample_id = record.sample.sample_id;
        measurement.rank = static_cast<int>(rank);
        measurement.series = Series(record.cost_ms[rank]);
        measurement.environment = record.environments[rank];
        measurements.push_back(measurement);
      }
      const Status added =
          store->AddCommMeasurements(*comm_sweep, record.sample.sample_id, measurements);
      ASSERT_TRUE(added.ok()) << added;
    }
  }

  static std::string Written(std::FILE* file) {
    std::fflush(file);
    std::rewind(file);
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
      text += static_cast<char>(c);
    }
    return text;
  }

  fs::path folder_;
  std::FILE* out_;
  std::FILE* err_;
  SteadyClock clock_;
  NeverStop stop_;
  CommandContext context_;
  TrainCommand train_;
};

TEST_F(PretrainCommandsTest, TrainThenEvaluateTheSameStore) {
  FillStore(SyntheticComputeRecords(500), SyntheticCommRecords(200, 2));
  const Status trained = RunTrain(train_, context_);
  ASSERT_TRUE(trained.ok()) << trained;
  const Json report = Json::parse(Written(out_));
  EXPECT_EQ(report["networks"].size(), 3u);
  EXPECT_EQ(report["networks"][0]["held_out"]["samples"], 50);
  EXPECT_GT(report["networks"][0]["held_out"]["kendall_tau"], 0.9);
  EXPECT_THAT(Written(err_), AllOf(HasSubstr("compute: epoch 1/60"), HasSubstr("best validation"),
                                   HasSubstr("500 compute and 200 communication samples")));

  std::FILE* out = std::tmpfile();
  context_.out = out;
  const Status evaluated = RunEvaluate(
      EvaluateCommand{train_.model_directory, train_.store, OutputFormat::kJson}, context_);
  ASSERT_TRUE(evaluated.ok()) << evaluated;
  const Json evaluation = Json::parse(Written(out));
  std::fclose(out);
  EXPECT_EQ(evaluation.size(), 3u);
  EXPECT_EQ(evaluation["compute"].size(), 5u);
  EXPECT_EQ(evaluation["compute"]["samples"], 500);
  EXPECT_EQ(evaluation["forward_comm"]["samples"], 100);
  EXPECT_EQ(evaluation["backward_comm"]["samples"], 100);
  EXPECT_GT(evaluation["compute"]["r2"], 0.9);
}

TEST_F(PretrainCommandsTest, EvaluateSaysNullWhereTheStoreHasNothing) {
  FillStore(SyntheticComputeRecords(60), {});
  ASSERT_TRUE(RunTrain(train_, context_).ok());
  EXPECT_THAT(Written(err_), HasSubstr("no communication network"));
  std::FILE* out = std::tmpfile();
  context_.out = out;
  ASSERT_TRUE(
      RunEvaluate(EvaluateCommand{train_.model_directory + "/", train_.store, OutputFormat::kJson},
                  context_)
          .ok());
  const Json evaluation = Json::parse(Written(out));
  std::fclose(out);
  EXPECT_TRUE(evaluation["forward_comm"].is_null());
  EXPECT_TRUE(evaluation["backward_comm"].is_null());
}

TEST_F(PretrainCommandsTest, BadInputsAreErrorsAndWriteNoModel) {
  EXPECT_EQ(RunTrain(train_, context_).code(), absl::StatusCode::kNotFound);  // no store
  FillStore({}, {});
  EXPECT_THAT(Message(RunTrain(train_, context_)), HasSubstr("no usable measurement"));
  std::ofstream(train_.config) << "epochs: 60\n";
  EXPECT_THAT(Message(RunTrain(train_, context_)), HasSubstr("epochs"));
  train_.model_directory = Path("models/cpu/latest");
  train_.config.clear();
  EXPECT_THAT(Message(RunTrain(train_, context_)), HasSubstr("NAME/VERSION"));
  EXPECT_FALSE(fs::exists(Path("models")));
}

TEST_F(PretrainCommandsTest, BatchSizeChoosesAmongMixedSamples) {
  auto compute = SyntheticComputeRecords(60);
  for (int i = 0; i < 30; ++i) compute[i].sample.batch_size = 2048;
  FillStore(compute, {});
  EXPECT_THAT(Message(RunTrain(train_, context_)),
              HasSubstr("batch_size: 2048 (30 records), 512 (30 records)"));
  train_.batch_size = 2048;
  const Status trained = RunTrain(train_, context_);
  EXPECT_TRUE(trained.ok()) << trained;
}

TEST_F(PretrainCommandsTest, AnInterruptLeavesNoModel) {
  FillStore(SyntheticComputeRecords(60), {});
  ManualStop stop;
  stop.Stop();
  context_.stop = &stop;
  EXPECT_EQ(RunTrain(train_, context_).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(fs::exists(Path("models/cpu/1")));
}

}  // namespace
}  // namespace neuroshard
