#include "server/cost/analytic/shard_perf.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace neuroshard {
namespace {

// planner/constants.py.
constexpr double kIdBytes = 8;
constexpr double kFullBlockCols = 128;
constexpr double kHalfBlockPenalty = 1.15;
constexpr double kQuarterBlockPenalty = 1.75;
constexpr double kBatchedCopyFactor = 2.455;
constexpr double kDataParallelElementwiseFactor = 9.22;

// Warps work on blocks of kFullBlockCols columns; narrower shards leave threads idle.
double BlockPenalty(double cols) {
  if (cols >= kFullBlockCols) return 1;
  return cols >= kFullBlockCols / 2 ? kHalfBlockPenalty : kQuarterBlockPenalty;
}

double IdBytes(double ids, bool weighted) { return std::ceil(ids * kIdBytes) * (weighted ? 2 : 1); }

double PooledReduceScatterBytes(std::optional<DataType> dtype, double element_bytes) {
  if (!dtype) return element_bytes;
  return dtype == DataType::kFp8 ? 2 : ElementBytes(*dtype);
}

// Values of the whole world's samples, from one of the `holders` of the rows.
double RowWiseValues(const ShardWork& work, double holders, double ranks) {
  return (work.unpooled ? work.vectors / holders : work.vectors) * ranks * work.cols;
}

// TorchEasyRec's fit of DynamicEmb (A10, 4 M rows of 128 columns, Adam): where any values are in
// host memory, the speed is that of `base` of them on the device, and hardly depends on how many
// are.
double DynamicBandwidth(const MemoryBandwidths& memory, double share, double base) {
  const double on_device = share >= 1 ? 1 : base + 0.01 * share;
  return (on_device * memory.device_bytes_per_ms +
          (1 - on_device) * memory.host_to_device_bytes_per_ms) /
         10;
}

// Sets the compute of `perf`: `ids` are looked up on the rank.
void SetCompute(const PerfCoefficients& coefficients, const ShardWork& work, double ids,
                double forward_bytes, double backward_bytes, double kernel_bytes_per_ms,
                ShardPerf& perf) {
  const auto ms = [&](const SizeCoefficients& of, double cols, double output_bytes,
                      double penalty) {
    return (of.ids * IdBytes(ids, work.weighted) + of.lookup * (ids * cols * work.element_bytes) +
            of.output * output_bytes + of.rows * work.rows) *
           penalty / kernel_bytes_per_ms;
  };
  const double forward_ms =
      ms(coefficients.forward, std::max(work.cols, coefficients.min_lookup_cols), forward_bytes,
         coefficients.block_penalty ? BlockPenalty(work.cols) : 1);
  double backward_ms = ms(coefficients.backward, work.cols, backward_bytes, 1) +
                       forward_ms * coefficients.backward_of_forward;
  if (work.weighted) {
    backward_ms =
        backward_ms * coefficients.weighted_backward + forward_ms * coefficients.weighted_gradient;
  }
  perf.forward_compute_ms = coefficients.forward_fixed_ms + forward_ms;
  perf.backward_compute_ms = coefficients.backward_fixed_ms + backward_ms;
}

}  // namespace

double KernelBandwidth(ComputeKernel kernel, const MemoryBandwidths& memory, double cached_share,
                       bool prefetched) {
  switch (kernel) {
    case ComputeKernel::kDense:
      return 0.5 * memory.device_bytes_per_ms;
    case ComputeKernel::kFused:
    case ComputeKernel::kOffload:
      return memory.device_bytes_per_ms;
    case ComputeKernel::kFusedUvm:
      return memory.host_to_device_bytes_per_ms / 10;
    case ComputeKernel::kFusedUvmCaching:
      if (prefetched) return memory.device_bytes_per_ms;
      return (cached_share * memory.device_bytes_per_ms +
              (1 - cached_share) * memory.host_to_device_bytes_per_ms) /
             10;
    case ComputeKernel::kKeyValue:
      return memory.ssd_bytes_per_ms;
    case ComputeKernel::kDynamicHybrid:
      return DynamicBandwidth(memory, cached_share, 0.11);
    case ComputeKernel::kDynamicCaching:
      return DynamicBandwidth(memory, cached_share, 0.28);
  }
  return 0;
}

CommElementBytes CommElementBytesOf(const QuantizedComms& comms, DataType weight_dtype,
                                    bool unpooled) {
  const double element_bytes = ElementBytes(weight_dtype);
  CommElementBytes wire = {ElementBytes(comms.forward_dtype.value_or(weight_dtype)),
                           ElementBytes(comms.backward_dtype.value_or(weight_dtype)), element_bytes,
                           element_bytes};
  if (unpooled) return wire;
  wire.forward_reduce_scatter = PooledReduceScatterBytes(comms.forward_dtype, element_bytes);
  wire.backward_reduce_scatter = PooledReduceScatterBytes(comms.backward_dtype, element_bytes);
  return wire;
}

ShardPerf TableWisePerf(const ShardWork& work, const CommElementBytes& wire,
                        const CommTopology& topology, double kernel_bytes_per_ms,
                        const PerfCoefficients& coefficients) {
  const double ranks = topology.num_ranks;
  const double values = work.vectors * ranks * work.cols;
  const double forward_bytes = values * wire.forward_all_to_all;
  const double backward_bytes = values * wire.backward_all_to_all;
  const double bandwidth =
      CommBandwidth(topology, Collective::kAllToAll, ranks, topology.ranks_per_host);
  ShardPerf perf;
  SetCompute(coefficients, work, work.ids * ranks, forward_bytes, backward_bytes,
             kernel_bytes_per_ms, perf);
  perf.forward_comm_ms = forward_bytes / bandwidth;
  perf.backward_comm_ms = backward_bytes / bandwidth;
  return perf;
}

ShardPerf RowWisePerf(const ShardWork& work, double holders, const CommElementBytes& wire,
                      const CommTopology& topology, double kernel_bytes_per_ms,
                      const PerfCoefficients& coefficients) {
  const double ranks = topology.num_ranks;
  const double values = RowWiseValues(work, holders, ranks);
  // Unpooled vectors are exchanged, pooled ones summed up on the way.
  const double forward_bytes =
      values * (work.unpooled ? wire.forward_all_to_all : wire.forward_reduce_scatter);
  const double backward_bytes =
      values * (work.unpooled ? wire.backward_all_to_all : wire.backward_reduce_scatter);
  const double per_host = topology.ranks_per_host;
  ShardPerf perf;
  SetCompute(coefficients, work, work.ids / holders * ranks, forward_bytes, backward_bytes,
             kernel_bytes_per_ms, perf);
  perf.forward_comm_ms =
      forward_bytes / CommBandwidth(topology, Collective::kReduceScatter, ranks, per_host);
  perf.backward_comm_ms =
      backward_bytes / CommBandwidth(topology, Collective::kAllGather, ranks, per_host) +
      backward_bytes * kBatchedCopyFactor / kernel_bytes_per_ms;
  return perf;
}

ShardPerf TableRowWisePerf(const ShardWork& work, double holders, const CommElementBytes& wire,
                           const CommTopology& topology, double kernel_bytes_per_ms,
                           const PerfCoefficients& coefficients) {
  const double ranks = topology.num_ranks;
  const double group = topology.ranks_per_host * topology.hosts_per_group;
  const double local = std::min(group, topology.ranks_per_host);
  const double values = RowWiseValues(work, holders, ranks);
  const double forward_bytes = values * wire.forward_reduce_scatter;
  const double backward_bytes = values * wire.backward_reduce_scatter;
  ShardPerf perf;
  SetCompute(coefficients, work, work.ids / holders * ranks, forward_bytes, backward_bytes,
             kernel_bytes_per_ms, perf);
  perf.forward_comm_ms =
      forward_bytes / CommBandwidth(topology, Collective::kReduceScatter, group, local);
  perf.backward_comm_ms =
      backward_bytes / CommBandwidth(topology, Collective::kAllGather, group, local);
  if (ranks > group) {
    // Between groups, an all-to-all of what the reduce-scatter has summed up.
    const double groups = ranks / group;
    const double group_values = work.vectors * groups * work.cols;
    const double bandwidth = CommBandwidth(topology, Collective::kAllToAll, groups, 1);
    perf.forward_comm_ms += group_values * wire.forward_all_to_all / bandwidth;
    perf.backward_comm_ms += group_values * wire.backward_all_to_all / bandwidth;
  }
  perf.backward_comm_ms += backward_bytes * kBatchedCopyFactor / kernel_bytes_per_ms;
  return perf;
}

double PrefetchMs(const ShardWork& work, double fetched_rows, double holders,
                  double host_to_device_bytes_per_ms) {
  return fetched_rows / holders * work.cols * work.element_bytes / host_to_device_bytes_per_ms;
}

ShardPerf DataParallelPerf(const ShardWork& work, const CommTopology& topology,
                           double kernel_bytes_per_ms, const PerfCoefficients& coefficients) {
  const double ranks = topology.num_ranks;
  const double per_host = topology.ranks_per_host;
  const double output_bytes = work.vectors * work.cols * work.element_bytes;
  const double table_bytes = work.rows * work.cols * work.element_bytes;
  ShardPerf perf;
  SetCompute(coefficients, work, work.ids, output_bytes, output_bytes, kernel_bytes_per_ms, perf);
  // The gradient of the whole table in a ring over hosts, twice where there are more than two.
  const double nodes = std::min(ranks / per_host, 2.0);
  double all_reduce_ms = table_bytes * (2 * nodes - 1) / nodes /
                         CommBandwidth(topology, Collective::kAllReduce, ranks, per_host);
  if (ranks > 2 * per_host) all_reduce_ms *= 2;
  perf.backward_comm_ms =
      all_reduce_ms + table_bytes * kDataParallelElementwiseFactor / kernel_bytes_per_ms;
  return perf;
}

}  // namespace neuroshard
