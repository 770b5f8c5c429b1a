// TorchRec 1.9.2's time estimates of one shard, by sharding type (the default coefficients of
// planner/estimator; training).
#pragma once

#include "common/domain/plan_request.h"
#include "server/cost/comm_bandwidth.h"

namespace neuroshard {

// The work of a shard. Every shard of a table gets the whole table's numbers except `cols`.
struct ShardWork {
  double ids = 0;            // of one rank's samples, summed over features
  double vectors = 0;        // that one rank's samples give: pooled ones, or one an id
  double rows = 0;           // of the shard; looked at by DataParallelPerf alone
  double cols = 0;           // of the shard
  double element_bytes = 4;  // of the table
  bool weighted = false;     // every id carries a weight
  bool unpooled = false;     // vectors are one an id, so that cut rows give their ids' alone
};

// Bytes of a value on the wire.
struct CommElementBytes {
  double forward_all_to_all = 4;
  double backward_all_to_all = 4;
  double forward_reduce_scatter = 4;
  double backward_reduce_scatter = 4;
};

// TorchRec's: the table's, unless codecs quantise the exchange (extract_comm_data_type_size of
// planner/utils.py, get_qcomm_codecs_registry). Those of pooled vectors send fp8 through a
// reduce-scatter as 16 bits; unpooled vectors have a codec for the all-to-all alone.
CommElementBytes CommElementBytesOf(const QuantizedComms& comms, DataType weight_dtype,
                                    bool unpooled);

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
// its share of the ids and has a partial sum for every sample of every rank. Of rows in proportion
// `holders` is EqualBlocks, infinite without rows: TorchRec 1.9.2 would divide by W there, too.
ShardPerf RowWisePerf(const ShardWork& work, double holders, const CommElementBytes& wire,
                      const CommTopology& topology, double kernel_bytes_per_ms);

// table_row_wise and grid_shard: rows over the `holders` ranks of a group of hosts, all ranks of it
// where groups are alike.
ShardPerf TableRowWisePerf(const ShardWork& work, double holders, const CommElementBytes& wire,
                           const CommTopology& topology, double kernel_bytes_per_ms);

// Rows that were not in their cache are fetched before the look-up: `fetched_rows` of the table by
// all ranks' samples, of which each of the `holders` of the rows (1 where rows are not cut) fetches
// its share.
double PrefetchMs(const ShardWork& work, double fetched_rows, double holders,
                  double host_to_device_bytes_per_ms);

// data_parallel: a copy on each rank for that rank's samples.
ShardPerf DataParallelPerf(const ShardWork& work, const CommTopology& topology,
                           double kernel_bytes_per_ms);

}  // namespace neuroshard
