#include "server/pretrain/pretrain_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
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
    Configure(
        "max_epochs: 60, comm: {max_epochs: 60}, table_hidden: [24, 12], representation: 8, "
        "members: 2, held_out_tables: 0");
  }
  ~PretrainCommandsTest() override {
    std::fclose(out_);
    std::fclose(err_);
    fs::remove_all(folder_);
  }

  void Configure(const std::string& keys) { std::ofstream(train_.config) << "{" << keys << "}\n"; }

  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // What a command wrote, from an output of its own.
  template <typename Command>
  Json Output(Status (*run)(const Command&, const CommandContext&), const Command& command) {
    CommandContext context = context_;
    context.out = std::tmpfile();
    const Status status = run(command, context);
    EXPECT_TRUE(status.ok()) << status;
    const std::string text = Written(context.out);
    std::fclose(context.out);
    return status.ok() ? Json::parse(text) : Json();
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
  FillStore(SyntheticComputeRecords(400), SyntheticCommRecords(200, 2));
  const Json report = Output(RunTrain, train_);
  ASSERT_EQ(report["networks"].size(), 3u);
  EXPECT_TRUE(report["usable"]);
  EXPECT_EQ(report["networks"][0]["network"], "compute");
  EXPECT_GT(report["networks"][0]["held_out"]["kendall_tau"], 0.9);
  EXPECT_GT(report["networks"][0]["interval_coverage"], 0.6);
  EXPECT_EQ(report["networks"][1]["network"], "all_to_all_forward");
  EXPECT_THAT(Written(err_), AllOf(HasSubstr("compute: epoch 1/60"), HasSubstr("best validation"),
                                   HasSubstr("400 compute and 200 communication samples")));
  EXPECT_FALSE(fs::exists(Path("models/cpu/.training-1")));

  const EvaluateCommand evaluate{train_.model_directory, train_.store, OutputFormat::kJson};
  const Json evaluation = Output(RunEvaluate, evaluate);
  EXPECT_EQ(evaluation.size(), 3u);
  EXPECT_EQ(evaluation["compute"].size(), 5u);
  EXPECT_EQ(evaluation["compute"]["samples"], 400);
  EXPECT_EQ(evaluation["forward_comm"]["samples"], 100);
  EXPECT_EQ(evaluation["backward_comm"]["samples"], 100);
  EXPECT_GT(evaluation["compute"]["kendall_tau"], 0.9);
  EXPECT_GT(evaluation["forward_comm"]["kendall_tau"], 0.7);
}

TEST_F(PretrainCommandsTest, NeuroshardPresetTrainsANetworkForEachCount) {
  Configure("preset: neuroshard, max_epochs: 40, min_compute_tau: -1");
  FillStore(SyntheticComputeRecords(200), SyntheticCommRecords(60, 2));
  const Json report = Output(RunTrain, train_);
  EXPECT_EQ(report["networks"][1]["network"], "backward_comm x2");
  const EvaluateCommand evaluate{train_.model_directory, train_.store, OutputFormat::kJson};
  EXPECT_EQ(Output(RunEvaluate, evaluate)["forward_comm"]["samples"], 30);
}

TEST_F(PretrainCommandsTest, EvaluateSaysNullWhereTheStoreHasNothing) {
  FillStore(SyntheticComputeRecords(60), {});
  Configure("max_epochs: 2");
  Output(RunTrain, train_);
  EXPECT_THAT(Written(err_), HasSubstr("no communication"));
  const EvaluateCommand evaluate{train_.model_directory + "/", train_.store, OutputFormat::kJson};
  const Json evaluation = Output(RunEvaluate, evaluate);
  EXPECT_TRUE(evaluation["forward_comm"].is_null());
  EXPECT_TRUE(evaluation["backward_comm"].is_null());
}

TEST_F(PretrainCommandsTest, AFabricStandsInForCommunicationThatNobodyMeasured) {
  FillStore(SyntheticComputeRecords(60), {});
  Configure("max_epochs: 2, min_compute_tau: -1");
  train_.fabric = NEUROSHARD_SOURCE_DIR "/configs/fabrics/h100-nvlink4_ndr.yaml";
  Output(RunTrain, train_);
  EXPECT_THAT(Read("models/cpu/1/model.yaml"),
              AllOf(HasSubstr("kind: fabric"), HasSubstr("name: h100-nvlink4_ndr")));
  EXPECT_THAT(Read("models/cpu/1/REPORT.md"), HasSubstr("Communication is not measured"));

  TrainCommand more = train_;  // going on keeps it
  more.resume_from = train_.model_directory;
  more.model_directory = Path("models/cpu/2");
  more.fabric.clear();
  Output(RunTrain, more);
  EXPECT_THAT(Read("models/cpu/2/model.yaml"), HasSubstr("name: h100-nvlink4_ndr"));
}

TEST_F(PretrainCommandsTest, AFabricIsRefusedWhereThereAreMeasurements) {
  FillStore(SyntheticComputeRecords(60), SyntheticCommRecords(20, 2));
  train_.fabric = NEUROSHARD_SOURCE_DIR "/configs/fabrics/h100-nvlink4_ndr.yaml";
  EXPECT_THAT(Message(RunTrain(train_, context_)), HasSubstr("20 samples in the store"));
  EXPECT_FALSE(fs::exists(Path("models/cpu/1")));
}

TEST_F(PretrainCommandsTest, CostsThatFollowNothingMakeAModelThatSaysSo) {
  auto compute = SyntheticComputeRecords(200);
  Random random(5);
  for (auto& record : compute) {
    record.forward_ms = 1 + random.UniformReal();
    record.backward_ms = 1 + random.UniformReal();
  }
  FillStore(compute, {});
  Configure("max_epochs: 5");
  const Json report = Output(RunTrain, train_);
  EXPECT_FALSE(report["usable"]);
  EXPECT_THAT(report["reason"], HasSubstr("Kendall tau"));
  EXPECT_THAT(Read("models/cpu/1/model.yaml"), HasSubstr("usable: false"));
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

TEST_F(PretrainCommandsTest, UniversalLearnsMixedConditionsNeuroshardMustChoose) {
  auto compute = SyntheticComputeRecords(60);
  for (int i = 0; i < 30; ++i) compute[i].sample.batch_size = 2048;
  FillStore(compute, {});
  Configure("max_epochs: 2");
  Output(RunTrain, train_);
  EXPECT_THAT(Read("models/cpu/1/model.yaml"), HasSubstr("{min: 512, max: 2048}"));
  train_.model_directory = Path("models/cpu/2");
  Configure("preset: neuroshard, max_epochs: 2, min_compute_tau: -1");
  EXPECT_THAT(Message(RunTrain(train_, context_)),
              HasSubstr("batch_size: 2048 (30 records), 512 (30 records)"));
  train_.batch_size = 2048;
  Output(RunTrain, train_);
}

TEST_F(PretrainCommandsTest, TwoDevicesInOneStoreAreAnError) {
  auto compute = SyntheticComputeRecords(60);
  compute[7].environment.device = "Another CPU";
  FillStore(compute, {});
  EXPECT_THAT(Message(RunTrain(train_, context_)), HasSubstr("device: Another CPU (1 records)"));
}

// Stops after some looks.
class StopLater final : public StopSignal {
 public:
  explicit StopLater(int looks) : looks_(looks) {}
  bool ShouldStop() const override { return looks_.fetch_sub(1) <= 0; }

 private:
  mutable std::atomic<int> looks_;
};

TEST_F(PretrainCommandsTest, AnInterruptedTrainingGoesOnToTheSameBytes) {
  FillStore(SyntheticComputeRecords(80), SyntheticCommRecords(40, 2));
  Configure("max_epochs: 12, members: 2, table_hidden: [8], comm: {max_epochs: 5}");
  Output(RunTrain, train_);
  train_.model_directory = Path("models/cpu/2");
  // Anywhere: in the middle of compute, and then of communication.
  for (const int looks : {15, 4, 9}) {
    const StopLater stop(looks);
    CommandContext context = context_;
    context.stop = &stop;
    EXPECT_EQ(RunTrain(train_, context).code(), absl::StatusCode::kCancelled) << looks;
    EXPECT_FALSE(fs::exists(Path("models/cpu/2")));
  }
  Output(RunTrain, train_);
  EXPECT_THAT(Written(err_), HasSubstr("goes on after epoch"));
  for (const char* name : {"compute.safetensors", "comm.safetensors"}) {
    EXPECT_EQ(Read(std::string("models/cpu/1/") + name), Read(std::string("models/cpu/2/") + name));
  }
  EXPECT_FALSE(fs::exists(Path("models/cpu/.training-2")));
}

TEST_F(PretrainCommandsTest, ACheckpointThatCannotBeWrittenIsAnError) {
  FillStore(SyntheticComputeRecords(60), {});
  Configure("max_epochs: 2");
  fs::create_directories(Path("models/cpu"));
  std::ofstream(Path("models/cpu/.training-1")) << "in the way";
  const Status status = RunTrain(train_, context_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr(".training-1"));
}

// Other samples, of another batch size, measured after the model and 1.3 times as dear.
std::vector<ComputeRecord> Slower(std::int64_t batch_size) {
  auto records = SyntheticComputeRecords(250, 7);
  for (auto& record : records) {
    record.forward_ms *= 1.3;
    record.backward_ms *= 1.3;
    record.sample.batch_size = batch_size;
    record.environment.measured_at_unix_ms = 1'796'000'000'000;
  }
  return records;
}

TEST_F(PretrainCommandsTest, GoingOnFromAModelTellsOldAndNewSamplesApart) {
  FillStore(SyntheticComputeRecords(250), {});
  Output(RunTrain, train_);
  TrainCommand again = train_;
  again.resume_from = train_.model_directory;
  again.replay_store = train_.store;
  again.store = train_.store = Path("new.db");
  again.model_directory = Path("models/cpu/2");
  FillStore(Slower(1024), {});
  std::map<std::string, double> mape;
  const Json report = Output(RunTrain, again);
  for (const auto& network : report["networks"]) {
    mape[network["network"]] = network["held_out"]["mape_percent"];
  }
  EXPECT_LT(mape.at("compute, new samples"), 0.7 * mape.at("compute, new samples, before"));
  EXPECT_LT(mape.at("compute, replayed samples"),
            1.3 * mape.at("compute, replayed samples, before") + 1);
}

TEST_F(PretrainCommandsTest, DriftIsHowMeasurementsMadeLaterCompare) {
  FillStore(SyntheticComputeRecords(250), {});
  Output(RunTrain, train_);
  const DriftCommand nothing{train_.model_directory, train_.store, OutputFormat::kJson};
  EXPECT_THAT(Message(RunDrift(nothing, context_)), HasSubstr("no measurement made after"));
  EXPECT_FALSE(fs::exists(Path("models/cpu/1/drift.yaml")));
  train_.store = Path("later.db");
  FillStore(Slower(512), {});
  const DriftCommand drift{train_.model_directory, train_.store, OutputFormat::kJson};
  const Json stages = Output(RunDrift, drift);
  EXPECT_EQ(stages.size(), 1u);
  EXPECT_EQ(stages["compute"]["samples"], 250);
  EXPECT_NEAR(stages["compute"]["median_ratio"], 1.3, 0.15);
  EXPECT_TRUE(fs::exists(Path("models/cpu/1/drift.yaml")));
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
