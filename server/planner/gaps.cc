#include "server/planner/gaps.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

#include "common/devices/device_table.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/cost/model_error.h"
#include "server/cost/unmeasured_compute.h"

namespace neuroshard {
namespace {

const std::vector<CostStage> kInCompute = {CostStage::kCompute};
const std::vector<CostStage> kInComm = {CostStage::kForwardComm, CostStage::kBackwardComm};
const std::vector<CostStage> kInAll = {CostStage::kCompute, CostStage::kForwardComm,
                                       CostStage::kBackwardComm};

template <typename Value, typename Values>
bool IsAmong(const Value& value, const Values& values) {
  return std::ranges::find(values, value) != values.end();
}

// Words of values, in the vocabulary's order.
template <typename E>
std::string TextOf(const std::set<E>& values) {
  return fmt::format("{}", fmt::join(ToTexts(values), ", "));
}

std::string AskedText(std::int64_t count, std::string_view what) {
  return count == 0 ? "" : fmt::format("{} {} of another", count, what);
}

// The gaps of one model, in the order in which they are added.
class GapList {
 public:
  explicit GapList(const ModelCoverage& coverage) : coverage_(coverage) {}

  void Add(Gap gap) { gaps_.push_back(std::move(gap)); }
  // A part of the price: a warning and a difference.
  void AddFormula(const std::string& text, std::vector<CostStage> stages) {
    Add({.difference = text,
         .warning = ": " + text + "; costs compare plans but do not forecast times",
         .stages = std::move(stages)});
  }
  // Conditions that were asked for besides what was measured; those that are empty were not.
  void AddConditions(const std::string& batch_size, const std::string& dtype,
                     const std::string& optimizer) {
    const auto add = [this](const std::string& what, const std::string& measured,
                            const std::string& asked) {
      if (asked.empty()) return;
      Add({.condition = what,
           .warning = fmt::format(" was measured at {} {}, the request has {}: costs compare "
                                  "plans but do not forecast times",
                                  what, measured, asked)});
    };
    const auto [least, most] = BatchSizes();
    const bool is_range = coverage_.ranges.max_batch_size != 0;
    add("global batch size", is_range ? fmt::format("{} to {}", least, most) : std::to_string(most),
        batch_size);
    add("weight dtype", fmt::format("{}", fmt::join(coverage_.Words<DataType>(), ", ")), dtype);
    add("optimizer", fmt::format("{}", fmt::join(coverage_.Words<Optimizer>(), ", ")), optimizer);
  }
  // Those of the values that another one stands in for.
  template <typename E>
  void AddStandIns(const std::set<E>& values, std::string_view text) {
    for (const E value : values) {
      const auto stand_in = StandInFor(coverage_, value);
      if (!stand_in) continue;
      AddFormula(fmt::format(fmt::runtime(text), ToText(value), ToText(*stand_in)), kInCompute);
    }
  }
  void AddRows(const std::set<DataType>& dtypes) {
    AddStandIns(dtypes,
                "rows of {} were not measured: priced as {} less the bytes that are not moved");
  }
  void AddOptimizers(const std::set<Optimizer>& optimizers) {
    const bool serves = optimizers.contains(Optimizer::kNone);
    AddStandIns(optimizers,
                serves ? "passes with optimizer {} were not measured: priced as the forward passes "
                         "of training with {}"
                       : "{} was not measured: priced as {} with the bytes of its own state");
  }

  bool CoversBatch(std::int64_t size) const {
    const auto [least, most] = BatchSizes();
    return most == 0 || (size >= least && size <= most);
  }
  // What has a stand-in is a gap of its own.
  template <typename E>
  bool Covers(E asked) const {
    const auto words = coverage_.Words<E>();
    return words.empty() || StandInFor(coverage_, asked) || IsAmong(ToText(asked), words);
  }
  // Those of the types that the model was not made for.
  std::set<ShardingType> Foreign(std::set<ShardingType> types) const {
    for (const ShardingType type : coverage_.sharding_types) types.erase(type);
    for (const ShardingType type : coverage_.measured_types) types.erase(type);
    return types;
  }

  std::vector<Gap> Take() { return std::move(gaps_); }

 private:
  // The least and the most that were measured; 0: not stated.
  std::pair<std::int64_t, std::int64_t> BatchSizes() const {
    const ConditionRanges& ranges = coverage_.ranges;
    if (ranges.max_batch_size != 0) return {ranges.min_batch_size, ranges.max_batch_size};
    return {coverage_.global_batch_size, coverage_.global_batch_size};
  }

  const ModelCoverage& coverage_;
  std::vector<Gap> gaps_;
};

std::string SsdBandwidthText(const Topology& topology) {
  const double bytes_per_s = topology.bandwidths.ssd_bytes_per_s;
  return fmt::format("{:.3g} GB/s a device (bandwidths.ssd_bytes_per_s{})", bytes_per_s / 1e9,
                     bytes_per_s == Bandwidths().ssd_bytes_per_s
                         ? ", TorchRec's default, far below an NVMe SSD's"
                         : "");
}

// Rows that are not in device memory.
void AddHostMemory(const PlanRequest& request, const CostModelInfo& model,
                   const std::set<ComputeKernel>& kernels, GapList& gaps) {
  const Bandwidths& bandwidths = request.topology.bandwidths;
  const double link_gb_per_s = bandwidths.host_to_device_bytes_per_s / 1e9;
  if (kernels.contains(ComputeKernel::kOffload)) {
    gaps.AddFormula(
        fmt::format("lookups by the host (offload) were not measured: all traffic over the link "
                    "at {:.0f} GB/s (bandwidths.host_to_device_bytes_per_s) and in the host's "
                    "memory at {:.0f} GB/s for all of its devices "
                    "(bandwidths.host_memory_bytes_per_s)",
                    link_gb_per_s, bandwidths.host_memory_bytes_per_s / 1e9),
        kInCompute);
  }
  const auto unmeasured = [&](ComputeKernel kernel) {
    return kernels.contains(kernel) && !KnowsKernel(model.coverage, request.pipeline_type, kernel);
  };
  if (unmeasured(ComputeKernel::kFusedUvm) || unmeasured(ComputeKernel::kFusedUvmCaching)) {
    gaps.AddFormula(
        fmt::format("rows in host memory were not measured: what misses the cache crosses the "
                    "link to the host at {:.0f} GB/s (bandwidths.host_to_device_bytes_per_s){}",
                    link_gb_per_s,
                    request.pipeline_type == PipelineType::kTrainPrefetchSparseDist
                        ? ", prefetched beside the lookups of the batch before"
                        : ""),
        kInCompute);
  }
  if (std::ranges::any_of(kernels, IsDynamic)) {
    gaps.AddFormula(
        fmt::format("dynamic tables were not measured: looked up as other tables are, and what is "
                    "in host memory alone crosses the link to the host at {:.0f} GB/s "
                    "(bandwidths.host_to_device_bytes_per_s)",
                    link_gb_per_s),
        kInCompute);
  }
  if (kernels.contains(ComputeKernel::kKeyValue)) {
    gaps.AddFormula(
        fmt::format("rows on SSD (key_value) were not measured: what misses the caches is read "
                    "from the SSDs and written back at {}, and crosses the link to the host at "
                    "{:.0f} GB/s (bandwidths.host_to_device_bytes_per_s)",
                    SsdBandwidthText(request.topology), link_gb_per_s),
        kInCompute);
  }
}

// Vectors that are not those of measured samples: one a sample, of fp32.
void AddVectors(const PlanRequest& request, const CostModelInfo& model, GapList& gaps) {
  if (request.has_unpooled_tables()) {
    if (!KnowsUnpooled(model.coverage)) {
      gaps.AddFormula("unpooled tables are priced as bags of one id, exchanged id by id", kInAll);
    } else if (request.topology.num_ranks() > 1) {
      gaps.AddFormula(
          "the exchange of unpooled tables was not measured: priced as that of pooled vectors of "
          "as many bytes",
          kInComm);
    }
  }
  if (std::ranges::any_of(request.tables, [](const Table& table) {
        return !table.num_poolings.empty() || !table.feature_batch_sizes.empty();
      })) {
    gaps.AddFormula(
        "bags and batches by feature were not measured: priced as a batch of as many bags, as far "
        "as such batches were",
        kInAll);
  }
  std::set<DataType> rows;
  std::set<DataType> vectors;
  for (const Table& table : request.tables) {
    rows.insert(table.weight_dtype);
    vectors.insert(table.output_dtype.value_or(DataType::kFp32));
  }
  gaps.AddRows(rows);
  vectors.erase(DataType::kFp32);
  if (!vectors.empty()) {
    gaps.AddFormula(
        fmt::format("vectors of {} were not measured: priced as fp32 less the bytes that are not "
                    "moved or exchanged",
                    TextOf(vectors)),
        kInAll);
  }
}

// Exchanges in other types than the vectors', and the casts before and after them: first where casts
// to the type were not measured either.
void AddQuantizedComms(const PlanRequest& request, const CostModelInfo& model, const Plan& plan,
                       GapList& gaps) {
  if (request.topology.num_ranks() == 1) return;
  const QuantizedComms& comms = request.quantized_comms;
  for (const bool casts_measured : {false, true}) {
    std::set<DataType> dtypes;
    std::vector<CostStage> stages = kInCompute;
    for (const auto& [dtype, stage] : {std::pair(comms.forward_dtype, CostStage::kForwardComm),
                                       std::pair(comms.backward_dtype, CostStage::kBackwardComm)}) {
      if (!dtype) continue;
      if (model.properties.measured_casts.Of(*dtype).has_value() != casts_measured) continue;
      dtypes.insert(*dtype);
      stages.push_back(stage);
    }
    if (dtypes.empty() || (casts_measured && !AddsPartialSums(plan, request.tables))) continue;
    gaps.AddFormula(
        fmt::format("exchanges {}in {} were not measured: priced by their bytes, with casts {}",
                    casts_measured ? "of cut rows " : "", TextOf(dtypes),
                    casts_measured ? "as in an all-to-all" : "at the bandwidth of device memory"),
        stages);
  }
}

// Whether the request wants the distribution of ids priced, and the model has not measured it at
// the request's ranks and hosts.
void AddInputDist(const PlanRequest& request, const CostModelInfo& model, GapList& gaps) {
  const Topology& topology = request.topology;
  const int num_ranks = topology.num_ranks();
  if (!request.pipeline_type || num_ranks == 1) return;
  const auto& measured = model.properties.measured_input_dist;
  if (measured && measured->At(num_ranks, static_cast<int>(topology.hosts().size()))) return;
  const std::vector<std::string> devices = DeviceNames(topology);
  std::string figures = "the request's bandwidths";
  if (!devices.empty()) {
    figures = FiguresOf(topology, devices);
  } else if (topology.bandwidths == Bandwidths()) {
    figures = "default bandwidths of a V100-class host";
  }
  gaps.Add({.difference = "the distribution of ids is a formula over " + figures,
            .stages = {CostStage::kInputDist},
            .kind = BasisKind::kPublished});
}

// Steps of a trainer, recorded at other numbers of ranks.
void AddSteps(const PlanRequest& request, const CostModelInfo& model, GapList& gaps) {
  const auto& steps = model.properties.measured_steps;
  const int num_ranks = request.topology.num_ranks();
  if (!steps || num_ranks == 1 || steps->Covers(num_ranks)) return;
  gaps.Add({.difference = fmt::format("what a trainer's steps take beside lookups and collectives "
                                      "was recorded at {} ranks",
                                      steps->At(num_ranks).num_ranks)});
}

// Numbers of ranks and hosts, and links. Of one rank there is nothing to measure.
void AddLinks(const PlanRequest& request, const ModelCoverage& coverage, GapList& gaps) {
  const ConditionRanges& ranges = coverage.ranges;
  const int num_ranks = request.topology.num_ranks();
  const int num_hosts = static_cast<int>(request.topology.hosts().size());
  if (num_ranks != 1 && ranges.max_ranks != 0 &&
      (num_ranks < ranges.min_ranks || num_ranks > ranges.max_ranks)) {
    gaps.Add({.condition = "number of ranks",
              .warning = fmt::format(" was measured with {} to {} ranks, the request has {}: "
                                     "communication is extrapolated",
                                     ranges.min_ranks, ranges.max_ranks, num_ranks)});
  }
  if (ranges.max_hosts != 0 && num_hosts > ranges.max_hosts) {
    const bool one = ranges.max_hosts == 1;
    gaps.Add({.condition = "number of hosts",
              .warning = fmt::format(" was measured on {} {}, the request has {}: communication is "
                                     "{}",
                                     ranges.max_hosts, one ? "host" : "hosts", num_hosts,
                                     one ? "priced as if all ranks were on one" : "extrapolated")});
  }
  if (!coverage.comm_fabric.empty() && num_ranks > 1) {
    gaps.Add({.warning = fmt::format(": communication is not measured (fabric {}): priced by "
                                     "published bandwidths, costs compare plans but do not "
                                     "forecast times",
                                     coverage.comm_fabric),
              .stages = kInComm,
              .kind = BasisKind::kPublished});
  }
}

// Types that the constraints name and the plan does not use.
std::set<ShardingType> UnusedTypes(const Constraints& constraints,
                                   const std::set<ShardingType>& used) {
  std::set<ShardingType> types(constraints.sharding_types.begin(),
                               constraints.sharding_types.end());
  for (const TableRule& rule : constraints.tables) {
    types.insert(rule.sharding_types.begin(), rule.sharding_types.end());
  }
  for (const ShardingType type : used) types.erase(type);
  return types;
}

// Nothing where no row block of the plan is priced as the hottest.
void AddHotRowBlocks(const PlanRequest& request, const Plan& plan, GapList& gaps) {
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  std::size_t count = 0;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (table_of[t] >= 0 && CutsRows(plan.tables[t].sharding_type)) {
      count += request.tables[static_cast<std::size_t>(table_of[t])].hot_row_blocks;
    }
  }
  if (count == 0) return;
  gaps.Add({.difference = fmt::format("row blocks of {} {} priced as the hottest, whose ids are "
                                      "expected from the reuse histogram",
                                      count, count == 1 ? "table are" : "tables are")});
}

const Gap kFormulasAlone = {.stages = {CostStage::kCompute, CostStage::kForwardComm,
                                       CostStage::kBackwardComm, CostStage::kInputDist},
                            .kind = BasisKind::kPublished};

}  // namespace

std::vector<Gap> GapsOf(const PlanRequest& request, const CostModelInfo& model, const Plan& plan) {
  std::set<ComputeKernel> kernels;
  std::set<ShardingType> types;
  for (const TablePlan& table : plan.tables) {
    kernels.insert(table.compute_kernel);
    types.insert(table.sharding_type);
  }
  GapList gaps(model.coverage);
  if (model.kind == kAnalyticKind) {
    gaps.Add(kFormulasAlone);
    if (kernels.contains(ComputeKernel::kKeyValue)) {
      gaps.Add({.difference = fmt::format("rows on SSD (key_value) are all read from the SSDs, as "
                                          "TorchRec has it, at {}",
                                          SsdBandwidthText(request.topology))});
    }
    if (std::ranges::any_of(kernels, IsDynamic)) {
      gaps.Add({.difference = "dynamic tables cost what TorchEasyRec fitted to DynamicEmb's on an "
                              "A10"});
    }
    AddHotRowBlocks(request, plan, gaps);
    return gaps.Take();
  }
  gaps.AddConditions(
      gaps.CoversBatch(request.global_batch_size) ? "" : std::to_string(request.global_batch_size),
      AskedText(
          std::ranges::count_if(
              request.tables, [&](const Table& table) { return !gaps.Covers(table.weight_dtype); }),
          "tables"),
      gaps.Covers(request.optimizer) ? "" : std::string(ToText(request.optimizer)));
  AddInputDist(request, model, gaps);
  AddHostMemory(request, model, kernels, gaps);
  AddVectors(request, model, gaps);
  AddQuantizedComms(request, model, plan, gaps);
  gaps.AddOptimizers({request.optimizer});
  if (const auto foreign = gaps.Foreign(types);
      !foreign.empty() && request.topology.num_ranks() > 1) {
    gaps.AddFormula(fmt::format("exchanges of {} were not measured: priced by volume equivalence",
                                TextOf(foreign)),
                    kInComm);
  }
  AddLinks(request, model.coverage, gaps);
  AddSteps(request, model, gaps);
  if (const auto foreign = gaps.Foreign(UnusedTypes(request.constraints, types));
      !foreign.empty()) {
    gaps.Add({.warning = fmt::format(" was not made for {}: priced by volume equivalence, not "
                                     "measured",
                                     TextOf(foreign))});
  }
  AddHotRowBlocks(request, plan, gaps);
  return gaps.Take();
}

std::vector<Gap> GapsOf(std::span<const ComputeSample> sets, const CostModelInfo& model) {
  if (model.kind == kAnalyticKind) return {kFormulasAlone};
  GapList gaps(model.coverage);
  std::set<DataType> rows;
  std::set<Optimizer> optimizers;
  bool unpooled = false;
  bool unmeasured_host_memory = false;
  std::int64_t other_batch_sizes = 0;
  std::int64_t other_dtypes = 0;
  std::int64_t other_optimizers = 0;
  for (const ComputeSample& set : sets) {
    optimizers.insert(set.optimizer);
    other_batch_sizes += gaps.CoversBatch(set.batch_size) ? 0 : 1;
    other_optimizers += gaps.Covers(set.optimizer) ? 0 : 1;
    for (const MeasuredShard& shard : set.shards) {
      rows.insert(shard.weight_dtype);
      other_dtypes += gaps.Covers(shard.weight_dtype) ? 0 : 1;
      unpooled |= shard.pooling_mode == PoolingMode::kNone;
      unmeasured_host_memory |=
          IsInHostMemory(shard.compute_kernel) &&
          !KnowsKernel(model.coverage, PipelineType::kNone, shard.compute_kernel);
    }
  }
  gaps.AddConditions(AskedText(other_batch_sizes, "sets"), AskedText(other_dtypes, "shards"),
                     AskedText(other_optimizers, "sets"));
  if (unmeasured_host_memory) {
    gaps.AddFormula("rows in host memory were not measured: priced by the bytes of the link",
                    kInCompute);
  }
  if (unpooled && !KnowsUnpooled(model.coverage)) {
    gaps.AddFormula("unpooled lookups are priced as bags of one id", kInCompute);
  }
  gaps.AddRows(rows);
  gaps.AddOptimizers(optimizers);
  return gaps.Take();
}

std::vector<CostStage> StagesOf(const PlanRequest& request) {
  if (request.topology.num_ranks() == 1) return kInCompute;
  std::vector<CostStage> stages = kInAll;
  if (request.pipeline_type) stages.push_back(CostStage::kInputDist);
  return stages;
}

bool IsComm(CostStage stage) { return IsAmong(stage, kInComm); }

BasisKind KindOf(CostStage stage, const std::vector<Gap>& gaps) {
  BasisKind kind = BasisKind::kMeasured;
  for (const Gap& gap : gaps) {
    if (!IsAmong(stage, gap.stages)) continue;
    if (gap.kind == BasisKind::kPublished) return gap.kind;
    kind = gap.kind;
  }
  return kind;
}

std::vector<std::string> GapWarnings(const std::vector<Gap>& gaps, const CostModelInfo& model) {
  std::vector<std::string> warnings;
  for (const Gap& gap : gaps) {
    if (gap.warning.empty()) continue;
    warnings.push_back(
        fmt::format("cost model {} version {}{}", model.name, model.version, gap.warning));
  }
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

std::string FiguresOf(const Topology& topology, const std::vector<std::string>& devices) {
  const PublishedDevice& first = *FindDevice(devices.front());
  const bool own = devices.size() == 1 &&
                   (topology.fabric != first.fabric ||
                    topology.bandwidths.device_memory_bytes_per_s != first.memory_bytes_per_s);
  return fmt::format("{} {}", own ? "the request's figures for" : "published figures of",
                     fmt::join(devices, " and "));
}

}  // namespace neuroshard
