// TorchRec 1.9.2's time estimates of one shard in training, by sharding type, and the bandwidths of
// kernels that they rest on (planner/estimator), with its default coefficients or others.
#pragma once

#include "common/domain/plan_request.h"
#include "common/domain/vocabulary.h"
#include "server/cost/comm_bandwidth.h"

namespace neuroshard {

// Bandwidths of the memories that a kernel may read.
struct MemoryBandwidths {
  double device_bytes_per_ms = 0;          // device memory
  double host_to_device_bytes_per_ms = 0;  // device to host link, for rows in host memory
  double ssd_bytes_per_ms = 0;
};

// Returns bytes per ms (kernel_bw_lookup of TorchRec 1.9.2, device "cuda"). Under kFusedUvmCaching
// `cached_share` of the rows are in device memory, which is as fast as kFused where rows are
// `prefetched`; other kernels ignore both: kKeyValue reads all of its rows from the SSD, whatever
// its cache holds. TorchRec has no kOffload; the lookups of that kernel are done by the host, and
// its vectors are in device memory. Nor has it dynamic kernels, whose bandwidths are TorchEasyRec's.
double KernelBandwidth(ComputeKernel kernel, const MemoryBandwidths& memory, double cached_share,
                       bool prefetched);

// Multipliers of what a lookup reads and writes (TorchRec's PerfCoefficient).
struct SizeCoefficients {
  double ids = 1;     // of bytes of ids
  double lookup = 1;  // of bytes of rows read
  double output = 1;  // of bytes of vectors
  double rows = 0;    // of the shard's rows

  bool operator==(const SizeCoefficients&) const = default;
};

// How compute follows from sizes; as they are, TorchRec's for rows that are cut.
struct PerfCoefficients {
  SizeCoefficients forward = {};
  // Beside `backward_of_forward` of the forward pass.
  SizeCoefficients backward = {0, 0, 0, 0};
  double forward_fixed_ms = 0;  // of a lookup, in addition; the backward pass has no share of it
  double backward_fixed_ms = 0;
  double backward_of_forward = 2;
  double weighted_backward = 1;    // factor of the backward pass of ids with weights
  double weighted_gradient = 1.1;  // what their weights' gradient takes of the forward pass
  double min_lookup_cols = 0;      // forward, a kernel reads at least that much of a row
  bool block_penalty = false;      // forward, narrow shards leave threads idle

  bool operator==(const PerfCoefficients&) const = default;
};

// TorchRec's for table_wise, column_wise and table_column_wise.
inline constexpr PerfCoefficients kWholeRowCoefficients = {.min_lookup_cols = 32,
                                                           .block_penalty = true};

// Coefficients of a HardwarePerfConfig for one sharding type and kernel, and the kernel's speed.
struct KernelCoefficients {
  ShardingType type = ShardingType::kTableWise;
  ComputeKernel kernel = ComputeKernel::kFused;
  double bytes_per_s = 0;         // where no row is cached
  double cached_bytes_per_s = 0;  // where all are; between the two in proportion
  PerfCoefficients of = {};

  bool operator==(const KernelCoefficients&) const = default;
};

// Work of a shard. All shards of a table have the table's values, except `rows` and `cols`.
struct ShardWork {
  double ids = 0;            // of one rank's samples, summed over features
  double vectors = 0;        // given by one rank's samples: pooled, or one per id
  double rows = 0;           // of the shard
  double cols = 0;           // of the shard
  double element_bytes = 4;  // of the table
  bool weighted = false;     // every id carries a weight
  // one vector per id, so that cut rows give the vectors of their own ids alone
  bool unpooled = false;
};

// Bytes of a value on the wire.
struct CommElementBytes {
  double forward_all_to_all = 4;
  double backward_all_to_all = 4;
  double forward_reduce_scatter = 4;
  double backward_reduce_scatter = 4;
};

// Returns TorchRec's sizes: the table's, unless codecs quantize the exchange
// (extract_comm_data_type_size of planner/utils.py, get_qcomm_codecs_registry). Codecs of pooled
// vectors send fp8 through a reduce-scatter as 16 bits; unpooled vectors have a codec for the
// all-to-all alone.
CommElementBytes CommElementBytesOf(const QuantizedComms& comms, DataType weight_dtype,
                                    bool unpooled);

// Time of a shard by stage. total_ms() adds in TorchRec's order, which decides its last bit.
struct ShardPerf {
  double forward_compute_ms = 0;
  double forward_comm_ms = 0;
  double backward_compute_ms = 0;
  double backward_comm_ms = 0;

  double total_ms() const {
    return forward_compute_ms + backward_compute_ms + forward_comm_ms + backward_comm_ms;
  }
};

// Prices table_wise, column_wise and table_column_wise. `kernel_bytes_per_ms`, here and below, is
// the KernelBandwidth of the shard's kernel.
ShardPerf TableWisePerf(const ShardWork& work, const CommElementBytes& wire,
                        const CommTopology& topology, double kernel_bytes_per_ms,
                        const PerfCoefficients& coefficients = kWholeRowCoefficients);

// Prices row_wise, where `holders` = W, and row_wise_subset: each holder gets its share of the ids
// and has a partial sum for every sample of every rank. For rows in proportion `holders` is
// EqualBlocks, infinite for a shard without rows; TorchRec 1.9.2 divides by W there, too.
ShardPerf RowWisePerf(const ShardWork& work, double holders, const CommElementBytes& wire,
                      const CommTopology& topology, double kernel_bytes_per_ms,
                      const PerfCoefficients& coefficients = {});

// Prices table_row_wise and grid_shard: rows over the `holders` ranks of a group of hosts.
ShardPerf TableRowWisePerf(const ShardWork& work, double holders, const CommElementBytes& wire,
                           const CommTopology& topology, double kernel_bytes_per_ms,
                           const PerfCoefficients& coefficients = {});

// Returns the time of fetching rows that missed their cache before the lookup: `fetched_rows` of
// the table for all ranks' samples, of which each of the `holders` (1 where rows are not cut)
// fetches its share.
double PrefetchMs(const ShardWork& work, double fetched_rows, double holders,
                  double host_to_device_bytes_per_ms);

// Prices data_parallel: a replica on each rank for that rank's samples.
ShardPerf DataParallelPerf(const ShardWork& work, const CommTopology& topology,
                           double kernel_bytes_per_ms, const PerfCoefficients& coefficients = {});

}  // namespace neuroshard
