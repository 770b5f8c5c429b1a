#include "server/pretrain/report/model_comparison.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "server/cost/compute_features.h"
#include "server/cost/shard_features.h"
#include "server/pretrain/data/comm_records.h"
#include "server/pretrain/data/measured_problem.h"
#include "server/pretrain/data/record_selection.h"

namespace neuroshard {
namespace {

// Bytes of a column of a sample on the wire.
constexpr float kElementBytes = 4;

double PredictCompute(const CostModel& model, const ComputeSample& sample) {
  std::vector<ShardFeatures> shards;
  for (const MeasuredShard& shard : sample.shards) shards.push_back(FeaturesOf(shard));
  // One rank, which every model can price.
  return model.Bind(ConditionsOf(sample))
      .value()
      .CostsOfSets(ShardSets({shards}))
      .front()
      .compute.total_ms;
}

// The load of a rank whose share of the collective is `columns` columns of a value for each sample.
CommLoad LoadOf(const BoundCostModel& model, Collective collective, std::int64_t columns) {
  const PricingConditions& conditions = model.conditions();
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
  return model.comm().Load(shard);
}

bool PricesForward(const CommSample& sample) {
  return sample.collective == Collective::kAllToAll
             ? sample.direction == CommDirection::kForward
             : sample.collective == Collective::kReduceScatter;
}

// The time of the slowest rank, the one value of such a record. Nothing where the model has a
// formula.
std::optional<std::vector<float>> PredictInputDist(const CostModel& model,
                                                   const CommRecord& record) {
  const auto& measured = model.info().properties.measured_input_dist;
  if (!measured) return std::nullopt;
  const std::optional<InputDistRates> rates = measured->At(
      static_cast<int>(record.sample.dim_sums.size()), static_cast<int>(HostsOf(record).size()));
  if (!rates) return std::nullopt;
  return {{static_cast<float>(rates->fixed_ms + rates->Ms(ObservationOf(record).bytes))}};
}

// Nothing where the model cannot say.
std::optional<std::vector<float>> PredictComm(const CostModel& model, const CommRecord& record) {
  const CommSample& sample = record.sample;
  if (sample.input_dist) return PredictInputDist(model, record);
  const bool late = std::ranges::any_of(sample.start_offsets_ms, [](double ms) { return ms > 0; });
  const bool forward = PricesForward(sample);
  if (late && !forward && sample.collective != Collective::kAllToAll) return std::nullopt;
  const std::optional<CastRates> casts =
      model.info().properties.measured_casts.Of(sample.wire_dtype);
  if (sample.casts() && !casts) return std::nullopt;
  PricingConditions conditions;
  conditions.num_ranks = static_cast<int>(sample.dim_sums.size());
  conditions.global_batch_size = sample.batch_size;
  conditions.hosts = HostsOf(record);
  const StatusOr<BoundCostModel> pricing = model.Bind(conditions);
  if (!pricing.ok()) return std::nullopt;
  std::vector<float> loads;
  CommSetup setup;  // of the collective alone
  for (const std::int64_t columns : sample.dim_sums) {
    float load = static_cast<float>(columns);
    if (sample.collective != Collective::kAllToAll) {
      const CommLoad of_rank = LoadOf(*pricing, sample.collective, columns);
      load = forward ? of_rank.forward : of_rank.backward;
      setup = pricing->comm().SetupOf(of_rank.kinds);
    }
    loads.push_back(load * static_cast<float>(sample.element_bytes) / kElementBytes);
  }
  std::vector<float> cost_ms(sample.dim_sums.size());
  if (forward) {
    std::vector<float> offsets(sample.start_offsets_ms.begin(), sample.start_offsets_ms.end());
    offsets.resize(cost_ms.size(), 0);
    pricing->comm().ForwardCosts(loads, offsets, cost_ms);
  } else {
    pricing->comm().BackwardCosts(loads, cost_ms);
  }
  const float setup_ms = forward ? setup.forward_ms : setup.backward_ms;
  for (std::size_t rank = 0; rank < cost_ms.size(); ++rank) {
    const double casts_ms = casts ? casts->Ms(CastValues(sample, rank)) : 0;
    cost_ms[rank] = std::max(0.0F, cost_ms[rank] + setup_ms) + static_cast<float>(casts_ms);
  }
  return cost_ms;
}

std::string StageOf(const CommSample& sample) {
  if (sample.input_dist) return std::string(kInputDistWord);
  if (sample.collective != Collective::kAllToAll) return std::string(ToText(sample.collective));
  return std::string(ToText(sample.direction)) + "_comm";
}

void Extend(std::int64_t unix_ms, StageComparison& stage) {
  if (unix_ms == 0) return;
  stage.since_unix_ms = stage.since_unix_ms == 0 ? unix_ms : std::min(stage.since_unix_ms, unix_ms);
  stage.until_unix_ms = std::max(stage.until_unix_ms, unix_ms);
}

}  // namespace

std::map<std::string, RegressionMetrics> ModelComparison::Metrics() const {
  std::map<std::string, RegressionMetrics> metrics;
  for (const StageComparison& stage : stages) {
    RegressionMetrics& of_stage = metrics[stage.stage] =
        MeasureRegression(stage.predicted_ms, stage.measured_ms);
    of_stage.samples = stage.samples;
  }
  return metrics;
}

ModelComparison CompareModel(const CostModel& model, std::span<const ComputeRecord> compute,
                             std::span<const CommRecord> comm) {
  ModelComparison comparison;
  for (const char* stage : {"compute", "forward_comm", "backward_comm", "reduce_scatter",
                            "all_gather", "all_reduce", "input_dist"}) {
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
    StageComparison& stage = *std::ranges::find_if(
        comparison.stages,
        [name = StageOf(record.sample)](const StageComparison& s) { return s.stage == name; });
    ++stage.samples;
    stage.predicted_ms.insert(stage.predicted_ms.end(), predicted->begin(), predicted->end());
    if (record.sample.input_dist) {
      stage.measured_ms.push_back(ObservationOf(record).ms);
    } else {
      stage.measured_ms.insert(stage.measured_ms.end(), record.cost_ms.begin(),
                               record.cost_ms.end());
    }
    for (const auto& environment : record.environments) {
      Extend(environment.measured_at_unix_ms, stage);
    }
  }
  std::erase_if(comparison.stages, [](const StageComparison& s) { return s.samples == 0; });
  return comparison;
}

std::vector<std::string> ConditionMismatches(const CostModelInfo& info,
                                             std::span<const ComputeRecord> compute,
                                             std::span<const CommRecord> comm) {
  RecordConditions measured;
  const auto add = [&](const RecordConditions& of_record) {
    for (const auto& [condition, values] : of_record) {
      measured[condition].insert(values.begin(), values.end());
    }
  };
  for (const CommRecord& record : comm) add(RecordConditionsOf(record));
  measured.erase("device");  // a model's device is that of its compute
  for (const ComputeRecord& record : compute) add(RecordConditionsOf(record));
  const std::int64_t batch_size = info.coverage.global_batch_size;
  const struct {
    const char* what;
    const char* condition;
    std::string of_model;
  } conditions[] = {
      {"global batch size", "batch_size", batch_size == 0 ? "" : fmt::format("{}", batch_size)},
      {"weight dtype", "weight_dtype", info.coverage.weight_dtype},
      {"optimizer", "optimizer", info.coverage.optimizer},
      {"device", "device", info.measured_with.device},
      {"backend", "compute backend", info.measured_with.backend},
      {"collectives", "collective backend", info.measured_with.collective_backend},
      {"cadence", "cadence", info.measured_with.collective_cadence}};
  std::vector<std::string> mismatches;
  for (const auto& [what, condition, model] : conditions) {
    std::set<std::string>& others = measured[condition];
    others.erase(model);
    others.erase("");  // not stated
    if (model.empty() || others.empty()) continue;
    mismatches.push_back(fmt::format("the model is for {} {}, the store also has {}", what, model,
                                     fmt::join(others, ", ")));
  }
  return mismatches;
}

}  // namespace neuroshard
