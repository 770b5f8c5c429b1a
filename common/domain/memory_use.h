// Memory use: bytes that shards take on a device (weights, optimizer state, ids, activations,
// reserve), in the memory of its host and on its host's SSDs.
#pragma once

#include <cstdint>

#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"

namespace neuroshard {

// Adds so many bytes `count` times, at least once. Sums stop at 2^60, so that totals of a few of
// them do not overflow.
inline void AddBytes(std::int64_t& sum, std::int64_t bytes, std::int64_t count = 1) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  sum = bytes > (kMost - sum) / count ? kMost : sum + count * bytes;
}

// Bytes by kind, and of what may be in several memories by memory. Sums saturate, so the total does
// not overflow.
struct MemoryUse {
  TierBytes weights = {};
  TierBytes optimizer = {};
  TierBytes caches = {};  // in host memory rows on SSD, elsewhere the state of caches on the device
  // On the device.
  std::int64_t input_bytes = 0;
  std::int64_t output_bytes = 0;
  std::int64_t reserve_bytes = 0;
  std::int64_t stashed_bytes = 0;  // of the weights there, those that are stashed

  TierBytes by_tier() const;
  // On the device: all, and weights and optimizer state alone.
  std::int64_t total_bytes() const { return by_tier()[MemoryTier::kDevice]; }
  std::int64_t row_bytes() const {
    return weights[MemoryTier::kDevice] + optimizer[MemoryTier::kDevice];
  }
  // Adds the bytes of every kind by AddBytes.
  MemoryUse& operator+=(const MemoryUse& other);
  bool operator==(const MemoryUse&) const = default;
};

// Optimizer state as FBGEMM keeps it (kFull): floats, whatever the weights are.
struct OptimizerState {
  double element_bytes = 0;  // of each weight, where the row is
  double row_bytes = 0;      // of each row, on the device
};
OptimizerState StateOf(Optimizer optimizer);

// Bytes of each row (of a shard): its values, whose last byte is whole where columns leave bits
// over, and what it has besides, FBGEMM's scale and bias: of fp32 as it trains int8, of fp16 as it
// serves int4 and int2, which nothing trains.
constexpr double ValueBytes(DataType weight_dtype, std::int64_t cols) {
  const std::int64_t bytes = (cols * ElementBits(weight_dtype) + 7) / 8;
  return static_cast<double>(bytes);
}
constexpr double RowBytesBesides(DataType weight_dtype) {
  if (weight_dtype == DataType::kInt8) return 8;
  return ElementBits(weight_dtype) < 8 ? 4 : 0;
}

// Whether TorchRec's memory stashing takes the weights of such a shard: those of sharded tables that
// are wholly on the device.
bool CanBeStashed(const ShardLayout& layout);

// The share of the rows of a shard that its cache on the device holds: of rows on SSD no more than
// the table's max_l1_cache_bytes are enough for. 0 without a cache.
double CachedShare(const Table& table, const ShardLayout& layout, std::int64_t rows,
                   std::int64_t cols);
// And its cache in host memory, where the rows are on SSD.
double HostCachedShare(const Table& table, const ShardLayout& layout, std::int64_t rows,
                       std::int64_t cols);

// One shard of `rows` x `cols` of `table`, laid out so, under the request's memory rule. Every kind
// saturates at 2^52 bytes, more than any device has, instead of overflowing.
//
// kFull. weights: rows x cols x dtype (ValueBytes), and RowBytesBesides of each. optimizer: SGD 0,
// Adagrad 4 B a weight, row-wise Adagrad 4 B a row, Adam 8 B a weight, LARS-SGD 4 B, LAMB 8 B,
// partial row-wise Adam 4 B a weight and 4 B a row; a dense kernel's gradient is counted here too,
// 1x weights, unless the request's optimizer is none. input: 8 B an id (4 B more if weighted) of
// the global batch, of which a cut in rows gets its share, times the batches that the pipeline
// holds: 1, 2 (train_sparse_dist) or 3 (train_prefetch_sparse_dist, which takes 7 x 8 B an id more
// of a cached table). output: global batch x cols x 4 B or output_dtype's, a vector for each bag
// where bags or batches of features are given, of an unpooled table for each id that it reads.
// data_parallel reads and writes its rank's share of the batch only.
// kWeightsOnly: weights alone (NeuroShard).
// Every rule: Table::allocated_rows for the rows of weights and state, of which a cut in rows has its
// share, and extra_bytes_per_row of each in the weights' bytes, in the memory where the rows are.
// Weights of a table with stash_weights that fused has on the device, without those bytes of rows,
// are stashed as well, and have a copy in the weights of host memory where hosts have any.
// kTorchRec: TorchRec 1.9.2's calculate_shard_storages, each kind rounded as there. weights: rows
// x cols x dtype. optimizer: SGD 0, row-wise Adagrad 1 / embedding_dim of the table, Adam 2x
// weights, any other 1x; no gradients. input: 8 B an id, weighted or not, of all ranks' samples,
// divided by the holders where rows are cut (rows in proportion: the ids of the shard's share,
// which TorchRec does not count so), times 1, 2 or 3 as above (of a cached table 10 where it is
// prefetched); output: the vectors (VectorsOf) of all ranks' samples x cols, in
// output_dtype or else the weights' type, of an unpooled table those of the ids that it reads;
// none with a pipeline. data_parallel: its own rank's samples. A shard without rows takes
// nothing.
//
// Rows in host memory (fused_uvm, fused_uvm_caching, offload): weights and optimizer state count
// for the host, those of the share that a cache holds for the device as well, with 4 B a row and 16
// B a cached row of the cache's own state (none under kWeightsOnly). Under kFull as FBGEMM has it:
// a cache holds no optimizer state, and state of whole rows (4 B a row) is on the device, of offload
// on the host, whose CPU updates the rows.
//
// Rows of a dynamic kernel, by every rule as TorchEasyRec counts DynamicEmb's: a value is a row with
// its optimizer state (the multiples of kTorchRec; none under kWeightsOnly), rounded up to 16 bytes.
// The device has load factor x all values and 17 bytes a row with 4 a bucket of 128 rows (keys,
// scores, digests), host memory the other values under dynamic_hybrid, all under dynamic_caching.
// All count as weights. extra_bytes_per_row is on the device.
//
// Rows on SSD (key_value): weights count there, those of CachedShare on the device, of
// HostCachedShare in host memory. Under kFull as FBGEMM 1.9's SSDTableBatchedEmbeddingBags has it:
// optimizer state is on the device whole, in floats, with 4 B a row more for Adam, and a cached row
// has 16 B of state; what it takes of host memory for rows on their way, and RocksDB for its
// buffers, is left out. Under kTorchRec: weights, optimizer state and cache state (4 B a row, 16 B
// a cached one) are on SSD, a shard's cache on the device has load factor x the whole table up to
// max_l1_cache_bytes, or none where that is not given, and host memory has nothing.
MemoryUse ShardMemory(const PlanRequest& request, const Table& table, const ShardLayout& layout,
                      std::int64_t rows, std::int64_t cols);

// The memory of a shard of all rows in table_wise, column_wise or table_column_wise.
MemoryUse ShardMemory(const PlanRequest& request, const Table& table, std::int64_t rows,
                      std::int64_t cols);

// Kept free on a device of `capacity_bytes`.
std::int64_t ReserveBytes(const MemoryModel& memory, std::int64_t capacity_bytes);

}  // namespace neuroshard
