// TorchRec 1.9.2's time estimates of one shard, by sharding type (the default coefficients of
// planner/estimator; training, pooled outputs, no prefetching cache).
#pragma once

#include "server/cost/analytic/comm_bandwidth.h"

namespace neuroshard {

// The work of a shard. Every shard of a table gets the whole table's numbers except `cols`.
struct ShardWork {
  double ids = 0;            // of one rank's samples, summed over features
  double vectors = 0;        // that one rank's samples pool: samples x features
  double rows = 0;           // of the shard; looked at by DataParallelPerf alone
  double cols = 0;           // of the shard
  double element_bytes = 4;  // of the table
  bool weighted = false;     // every id carries a weight
};

// Bytes of a value on the wire; TorchRec's are the table's unless a codec makes them smaller.
struct CommElementBytes {
  double forward_all_to_all = 4;
  double backward_all_to_all = 4;
  double forward_reduce_scatter = 4;
  double backward_reduce_scatter = 4;
};

// Milliseconds. The order in total_ms() is TorchRec's, which decides its last bit.
struct ShardPerf {
  double forward_compute_ms = 0;
  double forward_comm_ms = 0;
  double backward_compute_ms = 0;
  double backward_comm_ms = 0;

  double total_ms() const {
    return forward_compute_ms + backward_compute_ms + forward_comm_ms + backward_comm_ms;
  }
};

// `kernel_bytes_per_ms` is KernelBandwidth of the shard's kernel.

// table_wise, column_wise, table_column_wise.
ShardPerf TableWisePerf(const ShardWork& work, const CommElementBytes& wire,
                        const CommTopology& topology, double kernel_bytes_per_ms);

// row_wise with `holders` = W, and HugeCTR's rows over some of the ranks: each of the holders gets
// its share of the ids and has a partial sum for every sample of every rank.
ShardPerf RowWisePerf(const ShardWork& work, double holders, const CommElementBytes& wire,
                      const CommTopology& topology, double kernel_bytes_per_ms);

// table_row_wise and grid_shard: rows over the `holders` ranks of a host, L where hosts are alike.
ShardPerf TableRowWisePerf(const ShardWork& work, double holders, const CommElementBytes& wire,
                           const CommTopology& topology, double kernel_bytes_per_ms);

// data_parallel: a copy on each rank for that rank's samples.
ShardPerf DataParallelPerf(const ShardWork& work, const CommTopology& topology,
                           double kernel_bytes_per_ms);

}  // namespace neuroshard
