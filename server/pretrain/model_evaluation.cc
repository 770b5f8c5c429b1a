#include "server/pretrain/model_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "server/pretrain/measured_features.h"

namespace neuroshard {
namespace {

double PredictCompute(const CostModel& model, const ComputeSample& sample) {
  if (sample.shards.empty()) return 0;
  std::vector<ShardFeatures> shards;
  for (const MeasuredShard& shard : sample.shards) shards.push_back(FeaturesOfMeasured(shard));
  const auto width = static_cast<std::size_t>(model.representation_width());
  std::vector<float> represented(shards.size() * width);
  std::vector<CommLoad> loads(shards.size());
  model.Represent(PricingConditions{}, shards, represented, loads);
  std::vector<float> sum(width, 0);
  for (std::size_t i = 0; i < represented.size(); ++i) sum[i % width] += represented[i];
  ComputeCost cost;
  model.ComputeCosts(sum, std::span(&cost, 1));
  return cost.total_ms;
}

std::vector<float> PredictComm(const CostModel& model, const CommSample& sample) {
  const std::size_t ranks = sample.dim_sums.size();
  const std::vector<float> dim_sums(sample.dim_sums.begin(), sample.dim_sums.end());
  std::vector<float> cost_ms(ranks);
  if (sample.direction == CommDirection::kBackward) {
    model.BackwardCommCosts(static_cast<int>(ranks), dim_sums, cost_ms);
    return cost_ms;
  }
  std::vector<float> offsets(sample.start_offsets_ms.begin(), sample.start_offsets_ms.end());
  offsets.resize(ranks, 0);
  model.ForwardCommCosts(static_cast<int>(ranks), dim_sums, offsets, cost_ms);
  return cost_ms;
}

struct Comparison {
  std::int64_t samples = 0;
  std::vector<double> predicted;
  std::vector<double> measured;

  std::optional<RegressionMetrics> Metrics() const {
    if (samples == 0) return std::nullopt;
    RegressionMetrics metrics = MeasureRegression(predicted, measured);
    metrics.samples = samples;
    return metrics;
  }
};

std::string Listed(const std::set<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

}  // namespace

ModelEvaluation EvaluateModel(const CostModel& model, std::span<const ComputeRecord> compute,
                              std::span<const CommRecord> comm) {
  Comparison computes;
  for (const ComputeRecord& record : compute) {
    ++computes.samples;
    computes.predicted.push_back(PredictCompute(model, record.sample));
    computes.measured.push_back(record.total_ms);
  }
  Comparison forward;
  Comparison backward;
  ModelEvaluation evaluation;
  const std::vector<int>& known = model.info().num_devices;
  for (const CommRecord& record : comm) {
    const int ranks = static_cast<int>(record.sample.dim_sums.size());
    if (record.sample.collective != Collective::kAllToAll ||
        std::find(known.begin(), known.end(), ranks) == known.end()) {
      ++evaluation.skipped_comm_samples;
      continue;
    }
    const bool is_forward = record.sample.direction == CommDirection::kForward;
    Comparison& comparison = is_forward ? forward : backward;
    ++comparison.samples;
    for (const float cost : PredictComm(model, record.sample)) comparison.predicted.push_back(cost);
    comparison.measured.insert(comparison.measured.end(), record.cost_ms.begin(),
                               record.cost_ms.end());
  }
  evaluation.compute = computes.Metrics();
  evaluation.forward_comm = forward.Metrics();
  evaluation.backward_comm = backward.Metrics();
  return evaluation;
}

std::vector<std::string> ConditionMismatches(const CostModelInfo& info,
                                             std::span<const ComputeRecord> compute,
                                             std::span<const CommRecord> comm) {
  std::set<std::string> batch_sizes;
  std::set<std::string> dtypes;
  std::set<std::string> optimizers;
  std::set<std::string> devices;
  for (const ComputeRecord& record : compute) {
    batch_sizes.insert(fmt::format("{}", record.sample.batch_size));
    optimizers.insert(std::string(ToText(record.sample.optimizer)));
    if (!record.environment.device.empty()) devices.insert(record.environment.device);
    for (const MeasuredShard& shard : record.sample.shards) {
      dtypes.insert(std::string(ToText(shard.weight_dtype)));
    }
  }
  for (const CommRecord& record : comm) {
    batch_sizes.insert(fmt::format("{}", record.sample.batch_size));
  }
  std::vector<std::string> mismatches;
  const auto compare = [&](const std::string& what, const std::string& model,
                           std::set<std::string> measured) {
    measured.erase(model);
    if (model.empty() || measured.empty()) return;
    mismatches.push_back(fmt::format("the model is for {} {}, the store also has {}", what, model,
                                     Listed(measured)));
  };
  compare("global batch size",
          info.global_batch_size == 0 ? "" : fmt::format("{}", info.global_batch_size),
          std::move(batch_sizes));
  compare("weight dtype", info.weight_dtype, std::move(dtypes));
  compare("optimizer", info.optimizer, std::move(optimizers));
  compare("device", info.device, std::move(devices));
  return mismatches;
}

}  // namespace neuroshard
