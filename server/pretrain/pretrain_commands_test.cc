#include "server/pretrain/pretrain_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <span>
#include <string>

#include "server/models/model_channel.h"
#include "server/networks/model_directory.h"
#include "server/networks/model_drift.h"
#include "server/networks/testing/model_fixture.h"
#include "server/pretrain/testing/pretrain_fixture.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

using PretrainCommandsTest = PretrainFixture;

TEST_F(PretrainCommandsTest, TrainThenEvaluateTheSameStore) {
  FillStore(SyntheticComputeRecords(400), SyntheticCommRecords(200, 2));
  const Json report = Output(RunTrain, train_);
  ASSERT_EQ(report["networks"].size(), 3u);
  EXPECT_TRUE(report["usable"]);
  EXPECT_EQ(report["networks"][0]["network"], "compute");
  EXPECT_GT(report["networks"][0]["held_out"]["kendall_tau"], 0.9);
  EXPECT_GT(report["networks"][0]["interval_coverage"], 0.6);
  EXPECT_EQ(report["networks"][1]["network"], "all_to_all_forward");
  EXPECT_THAT(Written(err_),
              AllOf(HasSubstr("compute epoch 0/60 0% ETA ?"), HasSubstr("best validation"),
                    HasSubstr("400 compute and 200 communication samples")));
  EXPECT_FALSE(fs::exists(Path("models/cpu/.training-1")));

  const CompareCommand evaluate{train_.model_directory, train_.store, OutputFormat::kJson};
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
  const CompareCommand evaluate{train_.model_directory, train_.store, OutputFormat::kJson};
  EXPECT_EQ(Output(RunEvaluate, evaluate)["forward_comm"]["samples"], 30);
}

TEST_F(PretrainCommandsTest, EvaluateSaysNullWhereTheStoreHasNothing) {
  FillStore(SyntheticComputeRecords(60), {});
  Configure("max_epochs: 2");
  Output(RunTrain, train_);
  EXPECT_THAT(Written(err_), HasSubstr("no communication"));
  const CompareCommand evaluate{train_.model_directory + "/", train_.store, OutputFormat::kJson};
  const Json evaluation = Output(RunEvaluate, evaluate);
  EXPECT_TRUE(evaluation["forward_comm"].is_null());
  EXPECT_TRUE(evaluation["backward_comm"].is_null());
}

// Launches of a microsecond are not what a model is judged by, nor what it learns from.
TEST_F(PretrainCommandsTest, SamplesThatLookNothingUpAreLeftOutAndSaid) {
  auto compute = SyntheticComputeRecords(60);
  for (std::size_t i = 0; i < 4; ++i) {
    for (MeasuredShard& shard : compute[i].sample.shards)
      shard.pooling_factor = static_cast<double>(i) * 1e-4;
  }
  for (ComputeRecord& record : std::span(compute).first(4)) record.sample.batch_size = 2048;
  compute[4].sample.shards.push_back(compute[4].sample.shards.front());
  compute[4].sample.shards.back().pooling_factor = 0;  // beside one that is looked up
  FillStore(compute, {});
  Configure("max_epochs: 2, min_compute_tau: -1");
  Output(RunTrain, train_);
  const std::string said = "3 compute samples look nothing up and are left out.";
  EXPECT_THAT(Written(err_), AllOf(HasSubstr("57 compute and 0"), HasSubstr(said)));
  EXPECT_THAT(Read("models/cpu/1/REPORT.md"), HasSubstr(said));
  const CompareCommand evaluate{train_.model_directory, train_.store, OutputFormat::kJson};
  EXPECT_EQ(Output(RunEvaluate, evaluate)["compute"]["samples"], 57);
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

// The report, the manifest and what goes on from it say which cadence was learned.
TEST_F(PretrainCommandsTest, AModelIsOfOneCadenceAndSaysWhich) {
  auto comm = SyntheticCommRecords(120, 2);
  for (std::size_t i = 0; i < 50; ++i) {
    comm[i].sample.cadence = Cadence::kBackToBack;
    comm[i].sample.start_offsets_ms.clear();
  }
  FillStore(SyntheticComputeRecords(60), comm);
  const std::string quick = "max_epochs: 2, comm: {max_epochs: 2}, min_compute_tau: -1";
  Configure(quick);
  Output(RunTrain, train_);
  EXPECT_THAT(Written(err_), HasSubstr("50 communication samples were measured with cadence "
                                       "back_to_back and are left out"));
  EXPECT_THAT(Read("models/cpu/1/model.yaml"), HasSubstr("collective_cadence: barrier"));
  EXPECT_THAT(Read("models/cpu/1/REPORT.md"),
              AllOf(HasSubstr("Collectives were measured with cadence barrier."),
                    HasSubstr("50 communication samples")));
  Configure(quick + ", records: {cadence: back_to_back}");
  TrainCommand in_rows = train_;
  in_rows.resume_from = train_.model_directory;
  in_rows.model_directory = Path("models/cpu/2");
  EXPECT_THAT(Message(RunTrain(in_rows, context_)),
              HasSubstr("measurements are of back_to_back, the model to go on from is of barrier"));
  in_rows.resume_from.clear();
  Output(RunTrain, in_rows);
  EXPECT_THAT(Read("models/cpu/2/model.yaml"), HasSubstr("collective_cadence: back_to_back"));

  const CompareCommand evaluate{train_.model_directory, train_.store, OutputFormat::kJson};
  Output(RunEvaluate, evaluate);
  EXPECT_THAT(Written(err_),
              HasSubstr("the model is for cadence barrier, the store also has back_to_back"));
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

TEST_F(PretrainCommandsTest, APoorModelIsSaidToBeServedOnlyWhereItWillBe) {
  auto compute = SyntheticComputeRecords(200);
  Random random(5);
  for (auto& record : compute) record.forward_ms = std::exp(8 * random.UniformReal());
  FillStore(compute, {});
  const auto said = [this](int version, const std::string& min_compute_tau) {
    Configure("max_epochs: 1, table_hidden: [8], members: 1, min_compute_tau: " + min_compute_tau);
    train_.model_directory = Path("models/cpu/" + std::to_string(version));
    CommandContext context = context_;
    context.err = std::tmpfile();
    EXPECT_TRUE(RunTrain(train_, context).ok());
    const std::string text = Written(context.err);
    std::fclose(context.err);
    EXPECT_THAT(text, HasSubstr("the model is poor"));
    return text.find("will serve it as its newest version") != std::string::npos;
  };
  EXPECT_TRUE(said(5, "-1"));
  EXPECT_TRUE(said(7, "-1"));
  EXPECT_FALSE(said(6, "-1")) << "7 is newer";
  EXPECT_FALSE(said(8, "0.9")) << "unusable";
  ASSERT_TRUE(WriteModelChannel(Path("models/cpu"), {5}).ok());
  EXPECT_FALSE(said(9, "-1")) << "5 is pinned";
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

TEST_F(PretrainCommandsTest, GoingOnWithCommunicationAloneKeepsCompute) {
  FillStore(SyntheticComputeRecords(60), {});
  Configure("max_epochs: 3, comm: {max_epochs: 3}, table_hidden: [8], min_compute_tau: -1");
  Output(RunTrain, train_);
  TrainCommand again = train_;
  again.resume_from = train_.model_directory;
  again.store = train_.store = Path("new.db");
  again.model_directory = Path("models/cpu/2");
  FillStore({}, SyntheticCommRecords(60, 2));
  const Json report = Output(RunTrain, again);
  EXPECT_EQ(report["usable"], true);
  EXPECT_EQ(Read("models/cpu/2/compute.safetensors"), Read("models/cpu/1/compute.safetensors"));
  EXPECT_TRUE(fs::exists(Path("models/cpu/2/comm.safetensors")));
}

TEST_F(PretrainCommandsTest, ServeWritesTheChannelInOneStepAndRefusesWhatPlannersWould) {
  for (const int version : {3, 4}) {
    ASSERT_TRUE(WriteModelFixture(Path("models"), {.name = "m", .version = version}).ok());
  }
  const ServeCommand all{Path("models/m/3"), std::nullopt};
  const ServeCommand some{Path("models/m/4"), 0.25};
  EXPECT_THAT(Message(RunServe(some, context_)), HasSubstr("say first which one keeps the rest"));
  ASSERT_TRUE(RunServe(all, context_).ok());
  ASSERT_TRUE(RunServe(some, context_).ok());
  EXPECT_THAT(Written(out_), HasSubstr("m: version 3, version 4 for 25% of the requests"));
  EXPECT_EQ(*ReadModelChannel(Path("models/m")), (ModelChannel{3, StagedVersion{4, 0.25}}));

  EXPECT_THAT(Message(RunServe({Path("models/m/3"), 0.5}, context_)),
              HasSubstr("serves all requests already"));
  fs::remove(Path("models/m/4/compute.safetensors"));
  EXPECT_THAT(Message(RunServe({Path("models/m/4"), std::nullopt}, context_)),
              HasSubstr("compute.safetensors"));
  EXPECT_EQ(*ReadModelChannel(Path("models/m")), (ModelChannel{3, StagedVersion{4, 0.25}}));
  ASSERT_TRUE(RunServe(all, context_).ok());
  EXPECT_EQ(*ReadModelChannel(Path("models/m")), ModelChannel{3});
}

TEST_F(PretrainCommandsTest, AVersionThatIsPoorServesOnlyByForce) {
  ModelFixture fixture = MakeModelFixture({.name = "m", .version = 5});
  fixture.manifest.metrics = {{"backward_comm.ranks_2.mape_percent", "141"},
                              {"backward_comm.ranks_2.samples", "30"},
                              {"compute.mape_percent", "8"},
                              {"compute.samples", "9"}};
  ASSERT_TRUE(WriteModelDirectory(Path("models/m/5"), fixture.manifest, fixture.files).ok());
  ASSERT_TRUE(WriteModelFixture(Path("models"), {.name = "m", .version = 4}).ok());
  ASSERT_TRUE(RunServe({Path("models/m/4"), std::nullopt}, context_).ok());
  for (const std::optional<double> share : {std::optional<double>(), std::optional(0.1)}) {
    EXPECT_THAT(Message(RunServe({Path("models/m/5"), share}, context_)),
                AllOf(HasSubstr("backward_comm.ranks_2 is 141% off"),
                      HasSubstr("compute was held against 9 samples"), HasSubstr("--force")));
  }
  EXPECT_EQ(*ReadModelChannel(Path("models/m")), ModelChannel{4});
  ASSERT_TRUE(RunServe({Path("models/m/5"), 0.1, true}, context_).ok());
  EXPECT_THAT(Written(err_), HasSubstr("warning: "));
  EXPECT_EQ(*ReadModelChannel(Path("models/m")), (ModelChannel{4, StagedVersion{5, 0.1}}));
  ASSERT_TRUE(RunServe({Path("models/m/5"), 0}, context_).ok()) << "taken back";
}

TEST_F(PretrainCommandsTest, DriftIsHowMeasurementsMadeLaterCompare) {
  FillStore(SyntheticComputeRecords(250), {});
  Output(RunTrain, train_);
  const CompareCommand nothing{train_.model_directory, train_.store, OutputFormat::kJson};
  EXPECT_THAT(Message(RunDrift(nothing, context_)),
              HasSubstr("no measurement of the model's backends made after"));
  EXPECT_FALSE(fs::exists(Path("models/cpu/1/drift.yaml")));
  train_.store = Path("later.db");
  FillStore(Slower(512), {});
  const CompareCommand drift{train_.model_directory, train_.store, OutputFormat::kJson};
  const Json stages = Output(RunDrift, drift);
  EXPECT_EQ(stages.size(), 2u);  // compute and the verdict
  EXPECT_TRUE(stages["verdict"]["drifted"].is_boolean());
  EXPECT_TRUE(stages["compute"]["drifted"].is_boolean());
  EXPECT_EQ(stages["compute"]["samples"], 250);
  EXPECT_NEAR(stages["compute"]["median_ratio"], 1.3, 0.15);
  EXPECT_TRUE(fs::exists(Path("models/cpu/1/drift.yaml")));
}

TEST_F(PretrainCommandsTest, DriftOfATrainersStepsStays) {
  FillStore(SyntheticComputeRecords(250), {});
  Configure("max_epochs: 2");
  Output(RunTrain, train_);
  const StageDrift steps{"steps", 12, 1.5, 1.25, 1.75, "2026-11-20", "2026-11-21"};
  const StageDrift replaced{"compute", 1, 9, 9, 9, "2026-11-20", "2026-11-21"};
  ASSERT_TRUE(WriteModelDrift(Path("models/cpu/1"), {replaced, steps}).ok());
  train_.store = Path("later.db");
  FillStore(Slower(512), {});
  const Json stages =
      Output(RunDrift, CompareCommand{train_.model_directory, train_.store, OutputFormat::kJson});
  EXPECT_TRUE(stages["steps"]["drifted"].get<bool>());
  EXPECT_THAT(stages["verdict"]["text"].get<std::string>(), HasSubstr("steps takes 1.50 times"));
  const auto drift = *ReadModelDrift(Path("models/cpu/1"));
  ASSERT_EQ(drift.size(), 2u);
  EXPECT_EQ(drift[0].samples, 250);
  EXPECT_EQ(drift[1], steps);
}

}  // namespace
}  // namespace neuroshard
