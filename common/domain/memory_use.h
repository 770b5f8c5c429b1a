// Memory use: bytes that shards take on a device (weights, optimizer state, ids, activations,
// reserve).
#pragma once

#include <cstdint>

#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"

namespace neuroshard {

// Bytes by kind. Sums saturate, so the total does not overflow.
struct MemoryUse {
  std::int64_t weights_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t input_bytes = 0;
  std::int64_t output_bytes = 0;
  std::int64_t reserve_bytes = 0;
  std::int64_t cache_state_bytes = 0;  // of caches of rows in host memory
  // In the memory of the device's host.
  std::int64_t host_weights_bytes = 0;
  std::int64_t host_optimizer_bytes = 0;

  // On the device.
  std::int64_t total_bytes() const {
    return weights_bytes + optimizer_bytes + input_bytes + output_bytes + reserve_bytes +
           cache_state_bytes;
  }
  std::int64_t host_total_bytes() const { return host_weights_bytes + host_optimizer_bytes; }
  // Saturates every kind at 2^60.
  MemoryUse& operator+=(const MemoryUse& other);
  bool operator==(const MemoryUse&) const = default;
};

// One shard of `rows` x `cols` of `table`, laid out so, under the request's memory rule. Every kind
// saturates at 2^52 bytes, more than any device has, instead of overflowing.
//
// kFull. weights: rows x cols x dtype. optimizer: SGD 0, Adagrad 1x weights, row-wise Adagrad 4 B a
// row, Adam 2x weights; a dense kernel's gradient is counted here too, 1x weights. input: 8 B an id
// (4 B more if weighted) of the global batch, of which a cut in rows gets its share; output: global
// batch x cols x 4 B. data_parallel reads and writes its rank's share of the batch only.
// kWeightsOnly: weights alone (NeuroShard).
// kTorchRec: TorchRec 1.4's calculate_shard_storages for HBM, pipeline type NONE, each kind rounded
// up. weights: as above. optimizer: SGD 0, Adagrad 1x, row-wise Adagrad 1 / embedding_dim of the
// table, Adam 2x weights; no gradients. input: 8 B an id, weighted or not, of all ranks' samples,
// divided by the holders where rows are cut; output: all ranks' samples x features of the table (1
// where none is named) x cols, in the weights' type; data_parallel: its own rank's samples. A shard
// without rows takes nothing.
//
// Rows in host memory (fused_uvm, fused_uvm_caching): weights and optimizer state count for the
// host; those of the share that a cache holds for the device as well, with 4 B a row and 16 B a
// cached row of the cache's own state (none under kWeightsOnly).
MemoryUse ShardMemory(const PlanRequest& request, const Table& table, const ShardLayout& layout,
                      std::int64_t rows, std::int64_t cols);

// The same for all rows in table_wise, column_wise or table_column_wise.
MemoryUse ShardMemory(const PlanRequest& request, const Table& table, std::int64_t rows,
                      std::int64_t cols);

// Kept free on a device of `capacity_bytes`.
std::int64_t ReserveBytes(const MemoryModel& memory, std::int64_t capacity_bytes);

}  // namespace neuroshard
