#include "server/pretrain/report/model_comparison.h"

#include <algorithm>
#include <optional>

#include "server/cost/compute_features.h"
#include "server/features/shard_features.h"
#include "server/pretrain/data/universal_problem.h"

namespace neuroshard {
namespace {

// Bytes of a column of a sample on the wire.
constexpr float kElementBytes = 4;

double PredictCompute(const CostModel& model, const ComputeSample& sample) {
  if (sample.shards.empty()) return 0;
  std::vector<ShardFeatures> shards;
  for (const MeasuredShard& shard : sample.shards) shards.push_back(FeaturesOf(shard));
  const auto width = static_cast<std::size_t>(model.representation_width());
  std::vector<float> represented(shards.size() * width);
  std::vector<CommLoad> loads(shards.size());
  model.Represent(ConditionsOf(sample), shards, represented, loads);
  std::vector<float> sum(width, 0);
  for (std::size_t i = 0; i < represented.size(); ++i) sum[i % width] += represented[i];
  ComputeCost cost;
  model.ComputeCosts(sum, std::span(&cost, 1));
  return cost.total_ms;
}

// The load of a rank whose share of the collective is `columns` columns of a value for each sample.
CommLoad LoadOf(const CostModel& model, const PricingConditions& conditions, Collective collective,
                std::int64_t columns) {
  ShardFeatures shard;
  shard.cols = columns;
  shard.rows = conditions.global_batch_size;
  shard.table_rows = shard.rows;
  if (collective == Collective::kAllReduce) {
    shard.layout.type = ShardingType::kDataParallel;
    shard.layout.kernel = ComputeKernel::kDense;
  } else {
    shard.layout.type = ShardingType::kRowWise;
    shard.layout.row_shards = conditions.num_ranks;
    shard.table_rows = shard.rows * conditions.num_ranks;
  }
  std::vector<float> phi(static_cast<std::size_t>(model.representation_width()));
  CommLoad load;
  model.Represent(conditions, std::span(&shard, 1), phi, std::span(&load, 1));
  return load;
}

bool PricesForward(const CommSample& sample) {
  return sample.collective == Collective::kAllToAll
             ? sample.direction == CommDirection::kForward
             : sample.collective == Collective::kReduceScatter;
}

// Nothing where the model cannot say.
std::optional<std::vector<float>> PredictComm(const CostModel& model, const CommRecord& record) {
  const CommSample& sample = record.sample;
  const int ranks = static_cast<int>(sample.dim_sums.size());
  const std::vector<int>& known = model.info().num_devices;
  if (ranks > model.info().max_ranks &&
      std::find(known.begin(), known.end(), ranks) == known.end()) {
    return std::nullopt;
  }
  const bool late = std::any_of(sample.start_offsets_ms.begin(), sample.start_offsets_ms.end(),
                                [](double ms) { return ms > 0; });
  const bool forward = PricesForward(sample);
  if (late && !forward && sample.collective != Collective::kAllToAll) return std::nullopt;
  PricingConditions conditions;
  conditions.num_ranks = ranks;
  conditions.global_batch_size = sample.batch_size;
  conditions.hosts = HostsOf(record);
  const auto bound = model.ForConditions(conditions);
  const CostModel& pricing = bound == nullptr ? model : *bound;
  std::vector<float> loads;
  CommSetup setup;  // of the collective alone
  for (const std::int64_t columns : sample.dim_sums) {
    float load = static_cast<float>(columns);
    if (sample.collective != Collective::kAllToAll) {
      const CommLoad of_rank = LoadOf(pricing, conditions, sample.collective, columns);
      load = forward ? of_rank.forward : of_rank.backward;
      setup = pricing.SetupOf(of_rank.kinds);
    }
    loads.push_back(load * static_cast<float>(sample.element_bytes) / kElementBytes);
  }
  std::vector<float> cost_ms(static_cast<std::size_t>(ranks));
  if (forward) {
    std::vector<float> offsets(sample.start_offsets_ms.begin(), sample.start_offsets_ms.end());
    offsets.resize(static_cast<std::size_t>(ranks), 0);
    pricing.ForwardCommCosts(ranks, loads, offsets, cost_ms);
  } else {
    pricing.BackwardCommCosts(ranks, loads, cost_ms);
  }
  const float setup_ms = forward ? setup.forward_ms : setup.backward_ms;
  for (float& cost : cost_ms) cost = std::max(0.0F, cost + setup_ms);
  return cost_ms;
}

std::string StageOf(const CommSample& sample) {
  if (sample.collective != Collective::kAllToAll) return std::string(ToText(sample.collective));
  return std::string(ToText(sample.direction)) + "_comm";
}

void Extend(std::int64_t unix_ms, StageComparison& stage) {
  if (unix_ms == 0) return;
  stage.since_unix_ms = stage.since_unix_ms == 0 ? unix_ms : std::min(stage.since_unix_ms, unix_ms);
  stage.until_unix_ms = std::max(stage.until_unix_ms, unix_ms);
}

}  // namespace

const StageComparison* ModelComparison::Find(const std::string& stage) const {
  const auto found = std::find_if(stages.begin(), stages.end(),
                                  [&](const StageComparison& s) { return s.stage == stage; });
  return found == stages.end() ? nullptr : &*found;
}

ModelComparison CompareModel(const CostModel& model, std::span<const ComputeRecord> compute,
                             std::span<const CommRecord> comm) {
  ModelComparison comparison;
  for (const char* stage :
       {"compute", "forward_comm", "backward_comm", "reduce_scatter", "all_gather", "all_reduce"}) {
    comparison.stages.push_back({stage, 0, {}, {}, 0, 0});
  }
  StageComparison& computes = comparison.stages.front();
  for (const ComputeRecord& record : compute) {
    ++computes.samples;
    computes.predicted_ms.push_back(PredictCompute(model, record.sample));
    computes.measured_ms.push_back(record.total_ms);
    Extend(record.environment.measured_at_unix_ms, computes);
  }
  for (const CommRecord& record : comm) {
    const auto predicted = PredictComm(model, record);
    if (!predicted) {
      ++comparison.skipped_comm_samples;
      continue;
    }
    StageComparison& stage = *std::find_if(
        comparison.stages.begin(), comparison.stages.end(),
        [name = StageOf(record.sample)](const StageComparison& s) { return s.stage == name; });
    ++stage.samples;
    stage.predicted_ms.insert(stage.predicted_ms.end(), predicted->begin(), predicted->end());
    stage.measured_ms.insert(stage.measured_ms.end(), record.cost_ms.begin(), record.cost_ms.end());
    for (const auto& environment : record.environments) {
      Extend(environment.measured_at_unix_ms, stage);
    }
  }
  std::erase_if(comparison.stages, [](const StageComparison& s) { return s.samples == 0; });
  return comparison;
}

}  // namespace neuroshard
