#include "server/planner/condition_warnings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string_view>

#include "common/domain/shard_layout.h"
#include "server/cost/model_error.h"
#include "server/cost/unmeasured_compute.h"

namespace neuroshard {
namespace {

// Those of the types that `model` was not made for, in the order of the vocabulary.
std::vector<std::string_view> ForeignTypes(std::set<ShardingType> types,
                                           const CostModelInfo& model) {
  for (const ShardingType type : model.coverage.sharding_types) types.erase(type);
  for (const ShardingType type : model.coverage.measured_types) types.erase(type);
  std::vector<std::string_view> foreign;
  for (const ShardingType type : types) foreign.push_back(ToText(type));
  return foreign;
}

std::set<ShardingType> TypesOf(const Plan& plan) {
  std::set<ShardingType> types;
  for (const TablePlan& table : plan.tables) types.insert(table.sharding_type);
  return types;
}

// That the constraints name and the plan does not use.
std::set<ShardingType> UnusedTypes(const Constraints& constraints, const Plan& plan) {
  std::set<ShardingType> types(constraints.sharding_types.begin(),
                               constraints.sharding_types.end());
  for (const TableRule& rule : constraints.tables) {
    types.insert(rule.sharding_types.begin(), rule.sharding_types.end());
  }
  for (const ShardingType used : TypesOf(plan)) types.erase(used);
  return types;
}

// One condition: what the model was measured at, and whether something else was asked for.
struct Condition {
  std::string_view what;
  std::string measured;
  std::string asked;  // empty: nothing else
};

std::string BatchSizesOf(const CostModelInfo& model) {
  if (model.coverage.ranges.max_batch_size == 0)
    return fmt::format("{}", model.coverage.global_batch_size);
  return fmt::format("{} to {}", model.coverage.ranges.min_batch_size,
                     model.coverage.ranges.max_batch_size);
}

bool Covers(const CostModelInfo& model, std::int64_t batch_size) {
  if (model.coverage.ranges.max_batch_size != 0) {
    return batch_size >= model.coverage.ranges.min_batch_size &&
           batch_size <= model.coverage.ranges.max_batch_size;
  }
  return model.coverage.global_batch_size == 0 || model.coverage.global_batch_size == batch_size;
}

// `words` are the ranges', `word` the only one where they are empty.
bool Covers(const std::vector<std::string>& words, const std::string& word,
            std::string_view asked) {
  if (words.empty()) return word.empty() || word == asked;
  return std::find(words.begin(), words.end(), asked) != words.end();
}

// What has a stand-in is among the FormulaAdditions.
bool Covers(const CostModelInfo& model, DataType dtype) {
  const ModelCoverage& coverage = model.coverage;
  return StandInFor(coverage, dtype) ||
         Covers(coverage.ranges.weight_dtypes, coverage.weight_dtype, ToText(dtype));
}

bool Covers(const CostModelInfo& model, Optimizer optimizer) {
  const ModelCoverage& coverage = model.coverage;
  return StandInFor(coverage, optimizer) ||
         Covers(coverage.ranges.optimizers, coverage.optimizer, ToText(optimizer));
}

std::string WordsOf(const std::vector<std::string>& words, const std::string& word) {
  return words.empty() ? word : fmt::format("{}", fmt::join(words, ", "));
}

// Of one rank there is nothing to measure.
bool CoversRanks(const CostModelInfo& model, int num_ranks) {
  return num_ranks == 1 || model.coverage.ranges.max_ranks == 0 ||
         (num_ranks >= model.coverage.ranges.min_ranks &&
          num_ranks <= model.coverage.ranges.max_ranks);
}

// What nothing in the request or among the sets says otherwise has no line.
std::vector<std::string> LinesOf(const CostModelInfo& model, std::span<const Condition> conditions,
                                 std::string_view who) {
  std::vector<std::string> lines;
  for (const auto& [what, measured, asked] : conditions) {
    if (asked.empty()) continue;
    lines.push_back(fmt::format(
        "cost model {} version {} was measured at {} {}, {} {}: costs compare plans but "
        "do not forecast times",
        model.name, model.version, what, measured, who, asked));
  }
  return lines;
}

std::string CountText(std::int64_t count, std::string_view what) {
  return count == 0 ? "" : fmt::format("{} {} of another", count, what);
}

using Conditions = std::array<Condition, 3>;

Conditions ConditionsOf(const PlanRequest& request, const CostModelInfo& model) {
  const auto covers_dtype = [&](const Table& table) { return Covers(model, table.weight_dtype); };
  const auto tables = static_cast<std::int64_t>(request.tables.size());
  return {
      Condition{"global batch size", BatchSizesOf(model),
                Covers(model, request.global_batch_size)
                    ? ""
                    : std::to_string(request.global_batch_size)},
      {"weight dtype", WordsOf(model.coverage.ranges.weight_dtypes, model.coverage.weight_dtype),
       CountText(tables - std::count_if(request.tables.begin(), request.tables.end(), covers_dtype),
                 "tables")},
      {"optimizer", WordsOf(model.coverage.ranges.optimizers, model.coverage.optimizer),
       Covers(model, request.optimizer) ? "" : std::string(ToText(request.optimizer))}};
}

Conditions ConditionsOf(std::span<const ComputeSample> sets, const CostModelInfo& model) {
  std::int64_t batch_sizes = 0;
  std::int64_t optimizers = 0;
  std::int64_t dtypes = 0;
  for (const ComputeSample& set : sets) {
    batch_sizes += Covers(model, set.batch_size) ? 0 : 1;
    optimizers += Covers(model, set.optimizer) ? 0 : 1;
    for (const MeasuredShard& shard : set.shards) {
      dtypes += Covers(model, shard.weight_dtype) ? 0 : 1;
    }
  }
  return {
      Condition{"global batch size", BatchSizesOf(model), CountText(batch_sizes, "sets")},
      {"weight dtype", WordsOf(model.coverage.ranges.weight_dtypes, model.coverage.weight_dtype),
       CountText(dtypes, "shards")},
      {"optimizer", WordsOf(model.coverage.ranges.optimizers, model.coverage.optimizer),
       CountText(optimizers, "sets")}};
}

bool CoversHosts(const CostModelInfo& model, std::size_t num_hosts) {
  return model.coverage.ranges.max_hosts == 0 ||
         num_hosts <= static_cast<std::size_t>(model.coverage.ranges.max_hosts);
}

// Stages that an addition is in.
const std::vector<CostStage> kInCompute = {CostStage::kCompute};
const std::vector<CostStage> kInComm = {CostStage::kForwardComm, CostStage::kBackwardComm};
const std::vector<CostStage> kInAll = {CostStage::kCompute, CostStage::kForwardComm,
                                       CostStage::kBackwardComm};

void AddAdditions(const std::vector<FormulaAddition>& additions, const CostModelInfo& model,
                  std::vector<std::string>& warnings) {
  for (const FormulaAddition& addition : additions) {
    warnings.push_back(
        fmt::format("cost model {} version {}: {}; costs compare plans but do not forecast times",
                    model.name, model.version, addition.text));
  }
}

// In the vocabulary's order.
std::string TextOf(const std::set<DataType>& dtypes) {
  std::vector<std::string_view> words;
  for (const DataType dtype : dtypes) words.push_back(ToText(dtype));
  return fmt::format("{}", fmt::join(words, ", "));
}

// Rows of one byte a value that were not measured, one addition for each dtype.
void AddDtypes(const std::set<DataType>& dtypes, const CostModelInfo& model,
               std::vector<FormulaAddition>& additions) {
  for (const DataType dtype : dtypes) {
    const auto stand_in = StandInFor(model.coverage, dtype);
    if (!stand_in) continue;
    additions.push_back(
        {fmt::format("rows of {} were not measured: priced as {} less the bytes that are not moved",
                     ToText(dtype), ToText(*stand_in)),
         kInCompute});
  }
}

void AddOptimizers(const std::set<Optimizer>& optimizers, const CostModelInfo& model,
                   std::vector<FormulaAddition>& additions) {
  for (const Optimizer optimizer : optimizers) {
    const auto stand_in = StandInFor(model.coverage, optimizer);
    if (!stand_in) continue;
    additions.push_back(
        {fmt::format("{} was not measured: priced as {} with the bytes of its own state",
                     ToText(optimizer), ToText(*stand_in)),
         kInCompute});
  }
}

// Of the exchanges of the request and the casts before and after them.
void AddQuantizedComms(const PlanRequest& request, const CostModelInfo& model, const Plan& plan,
                       std::vector<FormulaAddition>& additions) {
  if (request.topology.num_ranks() == 1) return;
  std::set<DataType> wire;
  std::set<DataType> measured;
  std::vector<CostStage> of_wire = kInCompute;
  std::vector<CostStage> of_measured = kInCompute;
  const auto add = [&](const std::optional<DataType>& dtype, CostStage stage) {
    if (!dtype) return;
    const bool has_rates = model.properties.measured_casts.Of(*dtype).has_value();
    (has_rates ? measured : wire).insert(*dtype);
    (has_rates ? of_measured : of_wire).push_back(stage);
  };
  add(request.quantized_comms.forward_dtype, CostStage::kForwardComm);
  add(request.quantized_comms.backward_dtype, CostStage::kBackwardComm);
  if (!wire.empty()) {
    additions.push_back(
        {fmt::format("exchanges in {} were not measured: priced by their bytes, with casts at the "
                     "bandwidth of device memory",
                     TextOf(wire)),
         of_wire});
  }
  if (!measured.empty() && AddsPartialSums(plan, request.tables)) {
    additions.push_back({fmt::format("exchanges of cut rows in {} were not measured: priced by "
                                     "their bytes, with casts as in an all-to-all",
                                     TextOf(measured)),
                         of_measured});
  }
}

std::vector<std::string> AskedOf(const Conditions& conditions) {
  std::vector<std::string> names;
  for (const Condition& condition : conditions) {
    if (!condition.asked.empty()) names.emplace_back(condition.what);
  }
  return names;
}

}  // namespace

std::vector<std::string> UnmeasuredConditions(const PlanRequest& request,
                                              const CostModelInfo& model) {
  std::vector<std::string> names = AskedOf(ConditionsOf(request, model));
  if (!CoversRanks(model, request.topology.num_ranks())) names.push_back("number of ranks");
  if (!CoversHosts(model, request.topology.hosts().size())) names.push_back("number of hosts");
  return names;
}

std::vector<std::string> UnmeasuredConditions(std::span<const ComputeSample> sets,
                                              const CostModelInfo& model) {
  return AskedOf(ConditionsOf(sets, model));
}

bool HasRowsOffDevice(const Plan& plan) {
  return std::any_of(plan.tables.begin(), plan.tables.end(), [](const TablePlan& table) {
    return TierOf(table.compute_kernel) != MemoryTier::kDevice;
  });
}

bool HasRowsOnSsd(const Plan& plan) {
  return std::any_of(plan.tables.begin(), plan.tables.end(), [](const TablePlan& table) {
    return TierOf(table.compute_kernel) == MemoryTier::kSsd;
  });
}

std::string SsdBandwidthText(const Topology& topology) {
  const double bytes_per_s = topology.bandwidths.ssd_bytes_per_s;
  return fmt::format("{:.3g} GB/s a device (bandwidths.ssd_bytes_per_s{})", bytes_per_s / 1e9,
                     bytes_per_s == Bandwidths().ssd_bytes_per_s
                         ? ", TorchRec's default, far below an NVMe SSD's"
                         : "");
}

std::vector<FormulaAddition> FormulaAdditions(const PlanRequest& request,
                                              const CostModelInfo& model, const Plan& plan) {
  if (model.kind == kAnalyticKind) return {};
  std::vector<FormulaAddition> additions;
  const Bandwidths& bandwidths = request.topology.bandwidths;
  const double link_gb_per_s = bandwidths.host_to_device_bytes_per_s / 1e9;
  const auto has = [&](ComputeKernel kernel) {
    return std::any_of(plan.tables.begin(), plan.tables.end(),
                       [&](const TablePlan& table) { return table.compute_kernel == kernel; });
  };
  if (has(ComputeKernel::kOffload)) {
    additions.push_back(
        {fmt::format("lookups by the host (offload) were not measured: all traffic over the link "
                     "at {:.0f} GB/s (bandwidths.host_to_device_bytes_per_s) and in the host's "
                     "memory at {:.0f} GB/s for all of its devices "
                     "(bandwidths.host_memory_bytes_per_s)",
                     link_gb_per_s, bandwidths.host_memory_bytes_per_s / 1e9),
         kInCompute});
  }
  const auto unmeasured = [&](ComputeKernel kernel) {
    return has(kernel) && !KnowsHostMemory(model.coverage, request.pipeline_type, kernel);
  };
  if (unmeasured(ComputeKernel::kFusedUvm) || unmeasured(ComputeKernel::kFusedUvmCaching)) {
    additions.push_back(
        {fmt::format("rows in host memory were not measured: what misses the cache crosses the "
                     "link to the host at {:.0f} GB/s (bandwidths.host_to_device_bytes_per_s){}",
                     link_gb_per_s,
                     request.pipeline_type == PipelineType::kTrainPrefetchSparseDist
                         ? ", prefetched beside the lookups of the batch before"
                         : ""),
         kInCompute});
  }
  if (has(ComputeKernel::kKeyValue)) {
    additions.push_back(
        {fmt::format("rows on SSD (key_value) were not measured: what misses the caches is read "
                     "from the SSDs and written back at {}, and crosses the link to the host at "
                     "{:.0f} GB/s (bandwidths.host_to_device_bytes_per_s)",
                     SsdBandwidthText(request.topology), link_gb_per_s),
         kInCompute});
  }
  if (request.has_unpooled_tables()) {
    if (!KnowsUnpooled(model.coverage)) {
      additions.push_back(
          {"unpooled tables are priced as bags of one id, exchanged id by id", kInAll});
    } else if (request.topology.num_ranks() > 1) {
      additions.push_back(
          {"the exchange of unpooled tables was not measured: priced as that of pooled vectors of "
           "as many bytes",
           kInComm});
    }
  }
  const auto states_bags = [](const Table& table) {
    return !table.num_poolings.empty() || !table.feature_batch_sizes.empty();
  };
  if (std::any_of(request.tables.begin(), request.tables.end(), states_bags)) {
    additions.push_back(
        {"bags and batches by feature were not measured: priced as a batch of as many bags, as far "
         "as such batches were",
         kInAll});
  }
  std::set<DataType> rows;
  std::set<DataType> vectors;
  for (const Table& table : request.tables) {
    rows.insert(table.weight_dtype);
    vectors.insert(table.output_dtype.value_or(DataType::kFp32));
  }
  AddDtypes(rows, model, additions);
  vectors.erase(DataType::kFp32);
  if (!vectors.empty()) {
    additions.push_back(
        {fmt::format("vectors of {} were not measured: priced as fp32 less the bytes that are not "
                     "moved or exchanged",
                     TextOf(vectors)),
         kInAll});
  }
  AddQuantizedComms(request, model, plan, additions);
  AddOptimizers({request.optimizer}, model, additions);
  const auto foreign = ForeignTypes(TypesOf(plan), model);
  if (!foreign.empty() && request.topology.num_ranks() > 1) {
    additions.push_back({fmt::format("exchanges of {} were not measured: priced by volume "
                                     "equivalence",
                                     fmt::join(foreign, ", ")),
                         kInComm});
  }
  return additions;
}

std::vector<FormulaAddition> FormulaAdditions(std::span<const ComputeSample> sets,
                                              const CostModelInfo& model) {
  if (model.kind == kAnalyticKind) return {};
  std::set<DataType> rows;
  std::set<Optimizer> optimizers;
  bool unpooled = false;
  bool unmeasured_host_memory = false;
  for (const ComputeSample& set : sets) {
    optimizers.insert(set.optimizer);
    for (const MeasuredShard& shard : set.shards) {
      rows.insert(shard.weight_dtype);
      unpooled = unpooled || shard.pooling_mode == PoolingMode::kNone;
      unmeasured_host_memory =
          unmeasured_host_memory ||
          (IsInHostMemory(shard.compute_kernel) &&
           !KnowsHostMemory(model.coverage, PipelineType::kNone, shard.compute_kernel));
    }
  }
  std::vector<FormulaAddition> additions;
  if (unmeasured_host_memory) {
    additions.push_back(
        {"rows in host memory were not measured: priced by the bytes of the link", kInCompute});
  }
  if (unpooled && !KnowsUnpooled(model.coverage)) {
    additions.push_back({"unpooled lookups are priced as bags of one id", kInCompute});
  }
  AddDtypes(rows, model, additions);
  AddOptimizers(optimizers, model, additions);
  return additions;
}

std::vector<std::string> ConditionWarnings(const PlanRequest& request, const CostModelInfo& model,
                                           const Plan& plan) {
  std::vector<std::string> warnings =
      LinesOf(model, ConditionsOf(request, model), "the request has");
  AddAdditions(FormulaAdditions(request, model, plan), model, warnings);
  const int num_ranks = request.topology.num_ranks();
  if (!CoversRanks(model, num_ranks)) {
    warnings.push_back(
        fmt::format("cost model {} version {} was measured with {} to {} ranks, the request has "
                    "{}: communication is extrapolated",
                    model.name, model.version, model.coverage.ranges.min_ranks,
                    model.coverage.ranges.max_ranks, num_ranks));
  }
  const std::size_t num_hosts = request.topology.hosts().size();
  if (!CoversHosts(model, num_hosts)) {
    warnings.push_back(fmt::format(
        "cost model {} version {} was measured on {} {}, the request has {}: {}", model.name,
        model.version, model.coverage.ranges.max_hosts,
        model.coverage.ranges.max_hosts == 1 ? "host" : "hosts", num_hosts,
        model.coverage.ranges.max_hosts == 1 ? "communication is priced as if all ranks were on one"
                                             : "communication is extrapolated"));
  }
  if (!model.coverage.comm_fabric.empty() && num_ranks > 1) {
    warnings.push_back(fmt::format(
        "cost model {} version {}: communication is not measured (fabric {}): priced by published "
        "bandwidths, costs compare plans but do not forecast times",
        model.name, model.version, model.coverage.comm_fabric));
  }
  if (model.kind == kAnalyticKind) return warnings;  // has formulas for every type
  const auto unused = UnusedTypes(request.constraints, plan);
  if (const auto foreign = ForeignTypes(unused, model); !foreign.empty()) {
    warnings.push_back(
        fmt::format("cost model {} version {} was not made for {}: priced by volume equivalence, "
                    "not measured",
                    model.name, model.version, fmt::join(foreign, ", ")));
  }
  return warnings;
}

std::vector<std::string> ConditionWarnings(std::span<const ComputeSample> sets,
                                           const CostModelInfo& model) {
  std::vector<std::string> warnings = LinesOf(model, ConditionsOf(sets, model), "the request has");
  AddAdditions(FormulaAdditions(sets, model), model, warnings);
  return warnings;
}

std::vector<std::string> QualityWarnings(const CostModelInfo& model) {
  std::vector<std::string> warnings;
  if (const auto reasons = ReasonsAgainst(model); !reasons.empty()) {
    warnings.push_back(fmt::format("cost model {} version {} should not be relied on: {}",
                                   model.name, model.version, fmt::join(reasons, "; ")));
  }
  for (const StageDrift& drift : model.drift) {
    if (!HasDrifted(model, drift)) continue;
    warnings.push_back(fmt::format(
        "cost model {} version {} has drifted: since it was made, {} took {:.2f} times what it "
        "predicts (median of {} measurements up to {}; {:.0f}% off is usual for it): measure and "
        "train again",
        model.name, model.version, drift.stage, drift.median_ratio, drift.samples, drift.until,
        100 * UsualError(model, drift.stage)));
  }
  return warnings;
}

}  // namespace neuroshard
