#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "server/networks/network_cost_model.h"
#include "server/pretrain/data/record_split.h"
#include "server/pretrain/report/model_comparison.h"
#include "server/pretrain/report/model_publication.h"
#include "server/pretrain/testing/synthetic_records.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

class SilentUniversalObserver final : public TrainingObserver {
 public:
  void OnEpoch(const EpochReport&) override {}
  void OnFinished(const EpochReport&, const std::string&) override {}
  void OnWarning(const std::string&) override {}
};

// As if it had been trained when there were no more features than these.
void ForgetFeatures(std::size_t kept, ModelStart& start) {
  std::vector<std::string>& features = start.manifest.compute.features;
  const std::size_t known = features.size();
  features.resize(kept);
  start.manifest.compute.layers.front() = std::ssize(features);
  for (auto& [name, tensor] : start.files.at("compute.safetensors").tensors) {
    if (!name.starts_with("feature_") && !name.ends_with(".table.0.weight")) continue;
    std::vector<float> values;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      if (i % known < kept) values.push_back(tensor.values[i]);
    }
    tensor.values = values;
    tensor.shape.back() = std::ssize(features);
  }
}

const StageComparison& StageOf(const ModelComparison& comparison, const std::string& name) {
  return *std::find_if(comparison.stages.begin(), comparison.stages.end(),
                       [&](const StageComparison& stage) { return stage.stage == name; });
}

TEST(UniversalTrainingTest, GoesOnFromAModelOfFewerFeatures) {
  std::vector<ComputeRecord> measured = SyntheticComputeRecords(200);
  const auto select = [](const std::vector<ComputeRecord>& records) {
    return *SelectRecords(records, {}, RecordFilter(), ConditionSupport::kAny);
  };
  TrainingConfig config = PresetConfig(TrainingPreset::kUniversal);
  config.optimization.max_epochs = 4;
  config.members = 2;
  SilentUniversalObserver observer;
  const NeverStop stop;
  const FitContext context = {&stop, 2, &observer, nullptr};
  const auto before = TrainModel(select(measured), config, nullptr, context);
  ASSERT_TRUE(before.ok()) << before.status();
  ModelStart start = {before->manifest, before->files, {}};
  ModelStart fewer = start;
  ForgetFeatures(34, fewer);  // SGD and two Adagrads: no other optimizer, and no unpooled lookups
  const auto same = TrainModel(select(measured), config, &fewer, context);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_NEAR(same->reports[1].held_out.mape_percent, before->reports[0].held_out.mape_percent,
              1e-3);

  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (i % 2 == 0) measured[i].sample.optimizer = Optimizer::kLamb;
    if (i % 3 > 0) continue;
    for (MeasuredShard& shard : measured[i].sample.shards) shard.pooling_mode = PoolingMode::kNone;
  }
  const SelectedRecords records = select(measured);
  const auto all = TrainModel(records, config, &start, context);
  ASSERT_TRUE(all.ok()) << all.status();
  const auto added = TrainModel(records, config, &fewer, context);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->manifest.compute.features, all->manifest.compute.features);
  EXPECT_EQ(added->files, all->files);
  EXPECT_NE(added->files.at("compute.safetensors"), before->files.at("compute.safetensors"));

  std::vector<std::string> names;
  for (const NetworkReport& report : added->reports) names.push_back(report.key);
  EXPECT_THAT(names, ::testing::IsSupersetOf(
                         {"compute.lamb", "compute.sgd", "compute.pooled", "compute.unpooled"}));
}

TEST(UniversalTrainingTest, AServerPredictsWhatTrainingReported) {
  auto comm = SyntheticCommRecords(60, 2);
  const auto wider = SyntheticCommRecords(60, 5);
  comm.insert(comm.end(), wider.begin(), wider.end());
  const SelectedRecords records =
      *SelectRecords(SyntheticComputeRecords(200), comm, RecordFilter(), ConditionSupport::kAny);
  TrainingConfig config = PresetConfig(TrainingPreset::kUniversal);
  config.optimization.max_epochs = 20;
  config.comm_optimization.max_epochs = 20;
  config.members = 2;
  SilentUniversalObserver observer;
  const NeverStop stop;
  const auto outcome = TrainModel(records, config, nullptr, {&stop, 2, &observer, nullptr});
  ASSERT_TRUE(outcome.ok()) << outcome.status();

  const fs::path root = fs::path(::testing::TempDir()) / fmt::format("universal-{}", ::getpid());
  const std::string directory = (root / "cpu" / "1").string();
  const auto location = LocateModel(directory, ExistingVersion::kRefuse);
  ASSERT_TRUE(PublishModel(*outcome, *location, {}, ExistingVersion::kRefuse).ok());
  const auto manifest = ReadModelManifest(directory);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto model = LoadCostModel(*manifest, directory);
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelComparison served = CompareModel(**model, records.compute, records.comm);
  fs::remove_all(root);

  const ComputeSplit split = SplitCompute(records.compute, config.held_out_tables, 0);
  const NetworkReport& compute = outcome->reports.front();
  ASSERT_EQ(compute.predicted_ms.size(), split.samples.test.size());
  for (std::size_t i = 0; i < compute.predicted_ms.size(); ++i) {
    const double expected = compute.predicted_ms[i];
    EXPECT_NEAR(StageOf(served, "compute").predicted_ms[split.samples.test[i]], expected,
                1e-3 * expected);
  }
  // Ranks of the held-out collectives of one kind, in order.
  std::vector<double> forward;
  std::size_t at = 0;
  const SampleSplit by_record = SplitComm(records.comm, 0);
  for (std::size_t r = 0; r < records.comm.size(); ++r) {
    if (records.comm[r].sample.direction != CommDirection::kForward) continue;
    const bool test = std::find(by_record.test.begin(), by_record.test.end(),
                                static_cast<std::int64_t>(r)) != by_record.test.end();
    for (std::size_t rank = 0; rank < records.comm[r].cost_ms.size(); ++rank, ++at) {
      if (test) forward.push_back(StageOf(served, "forward_comm").predicted_ms[at]);
    }
  }
  const auto report =
      std::find_if(outcome->reports.begin(), outcome->reports.end(),
                   [](const NetworkReport& each) { return each.key == "forward_comm"; });
  ASSERT_EQ(report->predicted_ms.size(), forward.size());
  for (std::size_t i = 0; i < forward.size(); ++i) {
    EXPECT_NEAR(forward[i], report->predicted_ms[i], 1e-3 * report->predicted_ms[i]);
  }
}

}  // namespace
}  // namespace neuroshard
