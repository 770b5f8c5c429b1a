#include "server/cost/unmeasured_compute.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "common/domain/memory_use.h"
#include "server/cost/compute_features.h"
#include "server/cost/host_traffic.h"
#include "server/cost/volume_equivalent.h"

namespace neuroshard {
namespace {

constexpr double kFp32Bytes = 4;
constexpr float kLeastShare = 0.5F;  // of a measured cost, whatever fewer bytes save

double BytesOf(DataType dtype) { return ElementBytes(dtype); }

template <typename Values, typename Value>
bool Has(const Values& values, const Value& value) {
  return std::ranges::find(values, value) != values.end();
}

// What the model was measured at.
template <typename E>
std::vector<E> Measured(const ModelCoverage& coverage) {
  std::vector<E> values;
  for (const std::string& text : coverage.Words<E>()) {
    if (const auto value = FromText<E>(text)) values.push_back(*value);
  }
  return values;
}

// Bytes that an update of a row of so many columns moves besides the row itself, read and written
// once.
double UpdateBytes(Optimizer optimizer, DataType dtype, double cols) {
  const bool takes_norms = optimizer == Optimizer::kLamb || optimizer == Optimizer::kLarsSgd;
  const OptimizerState state = StateOf(optimizer);
  return 2 * (state.element_bytes * cols + state.row_bytes) +
         (takes_norms ? RowBytes(dtype, cols) : 0);
}

// Milliseconds that are added for a shard, in the order of the columns.
struct Added {
  double forward_ms = 0;
  double backward_ms = 0;
  double link_ms = 0;
  double cast_values = 0;  // whose casts were measured

  bool none() const {
    return forward_ms == 0 && backward_ms == 0 && link_ms == 0 && cast_values == 0;
  }
};

float Bounded(double ms) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(ms, -kLargest, kLargest));
}

float WithAdded(float measured_ms, double added_ms) {
  if (added_ms == 0) return measured_ms;
  return std::max(kLeastShare * measured_ms, Bounded(double{measured_ms} + added_ms));
}

class UnmeasuredCompute final : public ComputeModel {
 public:
  UnmeasuredCompute(std::shared_ptr<const ComputeModel> measured, const CostModelInfo& info,
                    const QuantizedComms& comms)
      : measured_(std::move(measured)),
        coverage_(info.coverage),
        forward_casts_(CastsTo(comms.forward_dtype, info.properties.measured_casts)),
        backward_casts_(CastsTo(comms.backward_dtype, info.properties.measured_casts)),
        knows_unpooled_(KnowsUnpooled(coverage_)),
        splits_(info.properties.splits_compute),
        width_(static_cast<std::size_t>(measured_->representation_width())) {}

  int representation_width() const override { return static_cast<int>(width_) + kAddedColumns; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    const std::size_t stride = width_ + kAddedColumns;
    assert(phi.size() == shards.size() * stride);
    std::vector<float> of_measured(shards.size() * width_);
    RepresentStandIns(conditions, shards, of_measured);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const auto row = phi.begin() + static_cast<std::ptrdiff_t>(i * stride);
      const auto from = of_measured.begin() + static_cast<std::ptrdiff_t>(i * width_);
      const bool on_host = shards[i].layout.kernel == ComputeKernel::kOffload;
      const auto columns =
          on_host ? std::fill_n(row, width_, 0.0F) : std::copy_n(from, width_, row);
      const Added added = AddedOf(conditions, shards[i]);
      columns[0] = Bounded(added.forward_ms);
      columns[1] = Bounded(added.backward_ms);
      columns[2] = Bounded(added.link_ms);
      columns[3] = Bounded(added.cast_values);
    }
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    const std::size_t stride = width_ + kAddedColumns;
    assert(sums.size() == out.size() * stride);
    thread_local std::vector<float> of_measured;  // searches ask thousands of times a millisecond
    of_measured.resize(out.size() * width_);
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::copy_n(&sums[i * stride], width_, &of_measured[i * width_]);
    }
    measured_->Costs(of_measured, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float* columns = &sums[i * stride + width_];
      Added added = {columns[0], columns[1], columns[2], columns[3]};
      if (added.none()) continue;
      if (forward_casts_) added.forward_ms += forward_casts_->Ms(added.cast_values);
      if (backward_casts_) added.backward_ms += backward_casts_->Ms(added.cast_values);
      // Offloaded tables alone: the device looks nothing up, which was not measured.
      if (std::all_of(&of_measured[i * width_], &of_measured[i * width_] + width_,
                      [](float value) { return value == 0; })) {
        out[i] = {};
      }
      out[i] = CostOf(out[i], added);
    }
  }

  std::vector<ComputeInterval> Intervals(const PricingConditions& conditions,
                                         const ShardSets& ranks,
                                         std::span<const ComputeCost> costs) const override {
    ShardSets stand_ins = ranks;
    for (ShardFeatures& shard : stand_ins.shards) {
      if (!IsMeasured(conditions, shard)) return {};
      shard = StandInOf(conditions, shard).shard;
    }
    return measured_->Intervals(conditions, stand_ins, costs);
  }

 private:
  ComputeCost CostOf(ComputeCost cost, const Added& added) const {
    if (splits_) {
      cost.forward_ms = WithAdded(cost.forward_ms, added.forward_ms);
      cost.backward_ms = WithAdded(cost.backward_ms, added.backward_ms);
      cost.total_ms = Bounded(double{cost.forward_ms} + cost.backward_ms);
    } else {
      cost.total_ms = WithAdded(cost.total_ms, added.forward_ms + added.backward_ms);
    }
    const double waits_ms = added.link_ms - cost.total_ms;
    if (waits_ms <= 0) return cost;
    cost.total_ms = Bounded(added.link_ms);
    if (splits_) cost.forward_ms = Bounded(cost.forward_ms + waits_ms);
    return cost;
  }

  // The shard and its batch as the model prices them.
  struct StandIn {
    ShardFeatures shard;
    std::int64_t batch_size = 0;
  };
  StandIn StandInOf(const PricingConditions& conditions, const ShardFeatures& shard) const {
    StandIn in = {shard, conditions.global_batch_size};
    in.shard.weight_dtype = StandInFor(coverage_, shard.weight_dtype).value_or(shard.weight_dtype);
    if (TierOf(shard.layout.kernel) != MemoryTier::kDevice && !KnowsKernelOf(conditions, shard)) {
      in.shard.layout.kernel = ComputeKernel::kFused;
      in.shard.layout.cache_load_factor = 0;
    }
    if (!shard.unpooled && !shard.states_bags) return in;
    in.shard.states_bags = false;
    in.shard.bags = {};
    if (shard.unpooled && knows_unpooled_) {
      in.shard.pooling_mode = PoolingMode::kNone;
      return in;
    }
    const double replicas =
        shard.layout.type == ShardingType::kDataParallel ? conditions.num_ranks : 1;
    const double bags = LookupsOf(conditions, shard).vectors * replicas;
    if (coverage_.ranges.max_batch_size > 0) {
      const std::int64_t most =
          std::max(coverage_.ranges.max_batch_size, conditions.global_batch_size);
      in.batch_size =
          std::max<std::int64_t>(1, std::llround(std::min(bags, static_cast<double>(most))));
    }
    in.shard.unpooled = false;
    if (shard.pooling_mode == PoolingMode::kNone) in.shard.pooling_mode = PoolingMode::kSum;
    in.shard.pooling_factor = shard.pooling_factor *
                              static_cast<double>(conditions.global_batch_size) /
                              static_cast<double>(in.batch_size);
    return in;
  }

  bool KnowsKernelOf(const PricingConditions& conditions, const ShardFeatures& shard) const {
    return KnowsKernel(coverage_, conditions.pipeline_type, shard.layout.kernel);
  }

  PricingConditions AtStandIn(const PricingConditions& conditions, std::int64_t batch_size) const {
    PricingConditions at = conditions;
    at.global_batch_size = batch_size;
    at.optimizer = StandInFor(coverage_, conditions.optimizer).value_or(conditions.optimizer);
    return at;
  }

  void RepresentStandIns(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                         std::span<float> phi) const {
    const std::vector<StandIn> stand_ins =
        Mapped(shards, [&](const ShardFeatures& shard) { return StandInOf(conditions, shard); });
    std::vector<ShardFeatures> alike;  // neighbours with one batch size go together
    for (std::size_t begin = 0; begin < shards.size(); begin += alike.size()) {
      const std::int64_t batch_size = stand_ins[begin].batch_size;
      alike.clear();
      for (std::size_t i = begin; i < shards.size() && stand_ins[i].batch_size == batch_size; ++i) {
        alike.push_back(stand_ins[i].shard);
      }
      measured_->Represent(AtStandIn(conditions, batch_size), alike,
                           phi.subspan(begin * width_, alike.size() * width_));
    }
  }

  // Rates of casts to a type on the wire; none: not measured.
  static std::optional<CastRates> CastsTo(const std::optional<DataType>& wire,
                                          const MeasuredCasts& measured) {
    return wire ? measured.Of(*wire) : std::nullopt;
  }

  // Casts of so many vectors before they are sent and, as many, after they came.
  void AddCasts(const PricingConditions& conditions, const ShardFeatures& shard, double vectors,
                Added& added) const {
    if (conditions.num_ranks == 1 || shard.layout.type == ShardingType::kDataParallel) return;
    const DataType own = VectorType(shard);
    const double values = 2 * vectors * static_cast<double>(shard.cols);
    const auto add = [&](const std::optional<DataType>& wire,
                         const std::optional<CastRates>& measured, double& ms) {
      if (wire.value_or(own) == own) return;
      if (measured && own == DataType::kFp32) {
        added.cast_values = values;
      } else {
        ms += values * (BytesOf(own) + BytesOf(*wire)) * kMsPerSecond /
              conditions.bandwidths.device_memory_bytes_per_s;
      }
    };
    add(conditions.quantized_comms.forward_dtype, forward_casts_, added.forward_ms);
    add(conditions.quantized_comms.backward_dtype, backward_casts_, added.backward_ms);
  }

  Added AddedOf(const PricingConditions& conditions, const ShardFeatures& shard) const {
    if (shard.rows == 0) return {};
    if (shard.layout.kernel == ComputeKernel::kOffload) {
      const HostTraffic host = HostTrafficOf(conditions, shard);
      return {.forward_ms = host.forward_ms, .backward_ms = host.backward_ms};
    }
    const StandIn in = StandInOf(conditions, shard);
    const double cols = static_cast<double>(shard.cols);
    const ShardLookups lookups = LookupsOf(conditions, shard);
    const ShardLookups measured = LookupsOf(AtStandIn(conditions, in.batch_size), in.shard);
    const double distinct =
        std::min(static_cast<double>(shard.rows), lookups.ids / MeanIdCount(shard.reuse_histogram));
    double forward_bytes = 0;
    double backward_bytes = 0;

    const double more = RowBytes(shard.weight_dtype, cols) - RowBytes(in.shard.weight_dtype, cols);
    forward_bytes += lookups.ids * more;
    backward_bytes += distinct * 2 * more;

    const double own_bytes = BytesOf(VectorType(shard));
    const double vectors = cols * (lookups.vectors * own_bytes - measured.vectors * kFp32Bytes);
    forward_bytes += vectors;
    backward_bytes += vectors;

    if (const auto stand_in = StandInFor(coverage_, conditions.optimizer)) {
      backward_bytes += distinct * (UpdateBytes(conditions.optimizer, shard.weight_dtype, cols) -
                                    UpdateBytes(*stand_in, in.shard.weight_dtype, cols));
    }
    const double ms_per_byte = kMsPerSecond / conditions.bandwidths.device_memory_bytes_per_s;
    const HostTraffic host =
        KnowsKernelOf(conditions, shard) ? HostTraffic() : HostTrafficOf(conditions, shard);
    Added added = {.forward_ms = forward_bytes * ms_per_byte + host.forward_ms,
                   .backward_ms = backward_bytes * ms_per_byte + host.backward_ms};
    AddCasts(conditions, shard, lookups.vectors, added);
    if (conditions.pipeline_type == PipelineType::kTrainPrefetchSparseDist) {
      added.link_ms = host.total_ms();
    } else {
      added.forward_ms += host.cache_ms;
    }
    return added;
  }

  // Whether the model was measured at what the shard is: no stand-in, nothing added but casts, which
  // are as certain as the rest of the cost.
  bool IsMeasured(const PricingConditions& conditions, const ShardFeatures& shard) const {
    Added added = AddedOf(conditions, shard);
    added.cast_values = 0;
    return (!shard.unpooled || knows_unpooled_) && !shard.states_bags &&
           !StandInFor(coverage_, shard.weight_dtype) &&
           !StandInFor(coverage_, conditions.optimizer) && added.none();
  }

  const std::shared_ptr<const ComputeModel> measured_;
  const ModelCoverage coverage_;
  const std::optional<CastRates> forward_casts_;
  const std::optional<CastRates> backward_casts_;
  const bool knows_unpooled_;
  const bool splits_;
  const std::size_t width_;  // of the model's phi
};

}  // namespace

std::optional<DataType> StandInFor(const ModelCoverage& coverage, DataType dtype) {
  const auto measured = Measured<DataType>(coverage);
  if (!IsLowPrecision(dtype) || measured.empty() || Has(measured, dtype)) return std::nullopt;
  return *std::ranges::min_element(
      measured, [](DataType a, DataType b) { return ElementBytes(a) < ElementBytes(b); });
}

std::optional<Optimizer> StandInFor(const ModelCoverage& coverage, Optimizer optimizer) {
  const bool is_lamb = optimizer == Optimizer::kLamb;
  const bool is_none = optimizer == Optimizer::kNone;
  if (!is_lamb && !is_none && optimizer != Optimizer::kPartialRowwiseAdam &&
      optimizer != Optimizer::kLarsSgd) {
    return std::nullopt;
  }
  std::array<Optimizer, 4> nearest = {Optimizer::kAdagrad, Optimizer::kAdam,
                                      Optimizer::kRowwiseAdagrad, Optimizer::kSgd};
  if (is_lamb) std::swap(nearest[0], nearest[1]);
  if (is_none) std::ranges::reverse(nearest);
  const auto measured = Measured<Optimizer>(coverage);
  if (Has(measured, optimizer)) return std::nullopt;
  const auto found =
      std::ranges::find_if(nearest, [&](Optimizer one) { return Has(measured, one); });
  return found == nearest.end() ? std::nullopt : std::optional(*found);
}

bool KnowsUnpooled(const ModelCoverage& coverage) {
  return Has(coverage.ranges.pooling_modes, ToText(PoolingMode::kNone));
}

bool KnowsKernel(const ModelCoverage& coverage, std::optional<PipelineType> pipeline,
                 ComputeKernel kernel) {
  return IsMeasurable(kernel) && pipeline != PipelineType::kTrainPrefetchSparseDist &&
         Has(coverage.ranges.compute_kernels, ToText(kernel));
}

std::shared_ptr<const ComputeModel> WithUnmeasured(std::shared_ptr<const ComputeModel> measured,
                                                   const CostModelInfo& info,
                                                   const PricingConditions& conditions) {
  const bool as_measured = !conditions.has_rows_off_device && conditions.has_plain_tables &&
                           conditions.quantized_comms == QuantizedComms() &&
                           !StandInFor(info.coverage, conditions.optimizer);
  if (as_measured) return measured;
  return std::make_shared<const UnmeasuredCompute>(std::move(measured), info,
                                                   conditions.quantized_comms);
}

}  // namespace neuroshard
