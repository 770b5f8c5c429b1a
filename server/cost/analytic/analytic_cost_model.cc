#include "server/cost/analytic/analytic_cost_model.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

#include "common/domain/expected_lookups.h"
#include "server/cost/host_traffic.h"

namespace neuroshard {
namespace {

constexpr std::size_t kWidth = 2;  // forward and backward compute

using Coefficients = std::shared_ptr<const std::vector<KernelCoefficients>>;  // not null

// Kind, types and properties of TorchRec's own coefficients.
CostModelInfo OfFormulas(CostModelInfo info) {
  info.kind = kAnalyticKind;
  // All that TorchRec's runtime has. Its planner tries grid_shard only where it is listed.
  info.coverage.sharding_types = {ShardingType::kTableWise,       ShardingType::kColumnWise,
                                  ShardingType::kRowWise,         ShardingType::kTableRowWise,
                                  ShardingType::kTableColumnWise, ShardingType::kGridShard,
                                  ShardingType::kDataParallel};
  info.properties = {.splits_compute = true,
                     .additive_compute = true,
                     .convex_compute = true,
                     .separable_comm = true,
                     .monotone_shard_costs = true,
                     .torchrec_input_dist = true};
  return info;
}

CostModelInfo MakeInfo() {
  CostModelInfo info;
  info.name = kAnalyticModelName;
  info.version = 1;
  info.details = {
      {"provenance.formulas", "performance estimates of the planner of TorchRec 1.9.2"},
      {"provenance.bandwidths",
       "the request's; absent ones are TorchRec's defaults, published figures of a V100-class "
       "host"},
      {"provenance.measurements",
       "none: costs compare plans as TorchRec does and do not forecast times"},
  };
  return OfFormulas(std::move(info));
}

// Types without coefficients are not tried unasked, and a few shards of a table no longer bound all
// ways of cutting it.
CostModelInfo WithCoefficients(CostModelInfo info, std::span<const KernelCoefficients> own) {
  info = OfFormulas(std::move(info));
  std::erase_if(info.coverage.sharding_types, [own](ShardingType type) {
    return std::none_of(own.begin(), own.end(), [type](const auto& of) { return of.type == type; });
  });
  info.properties.monotone_shard_costs = false;
  return info;
}

// The formulas with the request's numbers.
class Formulas {
 public:
  Formulas(const PricingConditions& conditions, Coefficients own)
      : own_(std::move(own)),
        topology_{static_cast<double>(conditions.num_ranks),
                  static_cast<double>(conditions.ranks_per_host),
                  conditions.bandwidths.intra_host_bytes_per_s / kMsPerSecond,
                  conditions.bandwidths.inter_host_bytes_per_s / kMsPerSecond,
                  static_cast<double>(conditions.pod_size)},
        batch_(static_cast<double>(conditions.global_batch_size)),
        samples_(static_cast<double>(conditions.global_batch_size) / conditions.num_ranks),
        memory_{conditions.bandwidths.device_memory_bytes_per_s / kMsPerSecond,
                conditions.bandwidths.host_to_device_bytes_per_s / kMsPerSecond,
                conditions.bandwidths.ssd_bytes_per_s / kMsPerSecond},
        prefetched_(conditions.pipeline_type == PipelineType::kTrainPrefetchSparseDist),
        comms_(conditions.quantized_comms) {}

  // Without PrefetchMs.
  ShardPerf Price(const ShardFeatures& shard) const {
    const CommElementBytes wire = CommElementBytesOf(comms_, shard.weight_dtype, shard.unpooled);
    const ShardWork work = WorkOf(shard);
    const double bytes_per_ms = BytesPerMs(shard.layout);
    const KernelCoefficients* const own = Own(shard.layout.type, shard.layout.kernel);
    const PerfCoefficients cut = own != nullptr ? own->of : PerfCoefficients();
    switch (shard.layout.type) {
      case ShardingType::kTableWise:
      case ShardingType::kColumnWise:
      case ShardingType::kTableColumnWise:
        return TableWisePerf(work, wire, topology_, bytes_per_ms,
                             own != nullptr ? own->of : kWholeRowCoefficients);
      case ShardingType::kRowWise:
      case ShardingType::kRowWiseSubset:
        return RowWisePerf(work, HoldersOf(shard), wire, topology_, bytes_per_ms, cut);
      case ShardingType::kTableRowWise:
      case ShardingType::kGridShard:
        return TableRowWisePerf(work, shard.layout.row_shards, wire, topology_, bytes_per_ms, cut);
      case ShardingType::kDataParallel:
        return DataParallelPerf(work, topology_, bytes_per_ms, cut);
    }
    return {};
  }

  // TorchRec's Perf.prefetch_compute, part of its total.
  double PrefetchMs(const ShardFeatures& shard) const {
    if (!prefetched_ || shard.layout.kernel != ComputeKernel::kFusedUvmCaching) return 0;
    const CacheHits hits =
        ExpectedCacheHits(shard.reuse_histogram, shard.table_rows, shard.pooling_factor * batch_,
                          shard.layout.cache_load_factor);
    return neuroshard::PrefetchMs(WorkOf(shard), hits.missed_rows(), HoldersOf(shard),
                                  memory_.host_to_device_bytes_per_ms);
  }

 private:
  // Null: TorchRec's.
  const KernelCoefficients* Own(ShardingType type, ComputeKernel kernel) const {
    if (type == ShardingType::kRowWiseSubset) type = ShardingType::kRowWise;
    const auto found = std::find_if(own_->begin(), own_->end(), [&](const auto& of) {
      return of.type == type && of.kernel == kernel;
    });
    return found == own_->end() ? nullptr : &*found;
  }

  double BytesPerMs(const ShardLayout& layout) const {
    const double share = layout.cache_load_factor;
    // Prefetched rows are read where kFused has them.
    const bool fetched = prefetched_ && layout.kernel == ComputeKernel::kFusedUvmCaching;
    const auto* const own = Own(layout.type, fetched ? ComputeKernel::kFused : layout.kernel);
    if (own == nullptr) return KernelBandwidth(layout.kernel, memory_, share, prefetched_);
    return (share * own->cached_bytes_per_s + (1 - share) * own->bytes_per_s) / kMsPerSecond;
  }

  ShardWork WorkOf(const ShardFeatures& shard) const {
    const double ranks = topology_.num_ranks;
    return {.ids = shard.pooling_factor * samples_,
            .vectors = shard.vectors.of_sample * samples_ + shard.vectors.of_batch / ranks,
            .rows = static_cast<double>(shard.rows),
            .cols = static_cast<double>(shard.cols),
            .element_bytes = ElementBytes(shard.weight_dtype),
            .weighted = shard.weighted,
            .unpooled = shard.unpooled};
  }

  static double HoldersOf(const ShardFeatures& shard) {
    return EqualBlocks(shard.layout, shard.rows, shard.table_rows);
  }

  Coefficients own_;
  CommTopology topology_;
  double batch_;    // of all ranks
  double samples_;  // of one rank
  MemoryBandwidths memory_;
  bool prefetched_;
  QuantizedComms comms_;
};

// phi: forward and backward compute, in ms.
class AnalyticCompute final : public ComputeModel {
 public:
  explicit AnalyticCompute(Coefficients own) : own_(std::move(own)) {}

  int representation_width() const override { return kWidth; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    assert(phi.size() == shards.size() * kWidth);
    const Formulas formulas(conditions, own_);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      if (shards[i].layout.kernel == ComputeKernel::kOffload) {
        const HostTraffic host = HostTrafficOf(conditions, shards[i]);
        phi[i * kWidth] = static_cast<float>(host.forward_ms);
        phi[i * kWidth + 1] = static_cast<float>(host.backward_ms);
        continue;
      }
      const ShardPerf perf = formulas.Price(shards[i]);
      phi[i * kWidth] =
          static_cast<float>(perf.forward_compute_ms + formulas.PrefetchMs(shards[i]));
      phi[i * kWidth + 1] = static_cast<float>(perf.backward_compute_ms);
    }
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    assert(sums.size() == out.size() * kWidth);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float forward_ms = sums[i * kWidth];
      const float backward_ms = sums[i * kWidth + 1];
      out[i] = {forward_ms + backward_ms, forward_ms, backward_ms};
    }
  }

 private:
  const Coefficients own_;
};

// Loads are in ms already.
class AnalyticComm final : public CommModel {
 public:
  AnalyticComm(const PricingConditions& conditions, Coefficients own)
      : formulas_(conditions, std::move(own)) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    const ShardPerf perf = formulas_.Price(shard);
    return {static_cast<float>(perf.forward_comm_ms), static_cast<float>(perf.backward_comm_ms)};
  }

  void Costs(CommStage /*stage*/, std::span<const float> loads,
             std::span<const float> /*start_offsets_ms*/, std::span<float> cost_ms) const override {
    assert(loads.size() == cost_ms.size());
    std::copy(loads.begin(), loads.end(), cost_ms.begin());
  }

 private:
  const Formulas formulas_;
};

class AnalyticCostModel final : public CostModel {
 public:
  AnalyticCostModel(CostModelInfo info, std::vector<KernelCoefficients> own)
      : CostModel(std::move(info)),
        own_(std::make_shared<const std::vector<KernelCoefficients>>(std::move(own))),
        compute_(std::make_shared<const AnalyticCompute>(own_)) {}

  StatusOr<BoundCostModel> Bind(const PricingConditions& conditions) const override {
    std::shared_ptr<const CommModel> comm = CommOfOneRank();
    if (conditions.num_ranks > 1) comm = std::make_shared<const AnalyticComm>(conditions, own_);
    return BoundCostModel(conditions, info().properties, info().coverage.sharding_types, compute_,
                          std::move(comm));
  }

 private:
  const Coefficients own_;
  const std::shared_ptr<const ComputeModel> compute_;
};

}  // namespace

std::shared_ptr<const CostModel> MakeAnalyticCostModel() {
  return std::make_shared<const AnalyticCostModel>(MakeInfo(), std::vector<KernelCoefficients>());
}

std::shared_ptr<const CostModel> MakeAnalyticCostModel(
    CostModelInfo info, std::vector<KernelCoefficients> coefficients) {
  info = WithCoefficients(std::move(info), coefficients);
  return std::make_shared<const AnalyticCostModel>(std::move(info), std::move(coefficients));
}

}  // namespace neuroshard
