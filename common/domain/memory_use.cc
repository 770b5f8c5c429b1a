#include "common/domain/memory_use.h"

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

// Above the largest device that a request can have (2^50), so that what saturates fits nowhere; far
// enough below the type's end that sums of many do not overflow.
constexpr double kSaturated = 0x1.0p52;
// Sums stop here, so that total_bytes() of the five kinds still fits.
constexpr std::int64_t kMaxSum = std::int64_t{1} << 60;

void AddSaturating(std::int64_t& sum, std::int64_t bytes) { sum = std::min(sum + bytes, kMaxSum); }

std::int64_t Saturate(double bytes) { return std::llround(std::min(std::ceil(bytes), kSaturated)); }

double OptimizerBytes(Optimizer optimizer, double weights_bytes, double rows) {
  switch (optimizer) {
    case Optimizer::kSgd:
      return 0;
    case Optimizer::kAdagrad:
      return weights_bytes;
    case Optimizer::kRowwiseAdagrad:
      return 4 * rows;
    case Optimizer::kAdam:
    case Optimizer::kLamb:
      return 2 * weights_bytes;
    case Optimizer::kPartialRowwiseAdam:
      return weights_bytes + 4 * rows;
    case Optimizer::kLarsSgd:
      return weights_bytes;
  }
  return 0;
}

// Optimizer state as a multiple of the weights' bytes (TorchRec's names of optimizer classes).
double TorchRecOptimizerMultiplier(Optimizer optimizer, double table_cols) {
  switch (optimizer) {
    case Optimizer::kSgd:
      return 0;
    case Optimizer::kAdagrad:
      return 1;
    case Optimizer::kRowwiseAdagrad:
      return 1 / table_cols;
    case Optimizer::kAdam:
      return 2;
    case Optimizer::kPartialRowwiseAdam:  // whatever TorchRec does not know counts once
    case Optimizer::kLamb:
    case Optimizer::kLarsSgd:
      return 1;
  }
  return 0;
}

// TorchRec counts a rank's samples, divides their ids by the ranks that share the rows, and then
// multiplies by all ranks; products are in its order, so that what it rounds up is the same number.
MemoryUse TorchRecMemory(const PlanRequest& request, const Table& table, const ShardLayout& layout,
                         std::int64_t rows, std::int64_t cols) {
  if (rows == 0) return {};
  const double ranks = request.topology.num_ranks();
  const double element = static_cast<double>(ElementBytes(table.weight_dtype));
  const double batch = static_cast<double>(request.global_batch_size) / ranks;
  const double peers = layout.type == ShardingType::kDataParallel ? 1 : ranks;
  const double ids = table.pooling_factor * batch / layout.row_shards * peers;
  const double vectors = PooledVectors(table) * batch * peers;
  const double weights = static_cast<double>(rows) * static_cast<double>(cols) * element;
  MemoryUse use;
  use.weights_bytes = Saturate(weights);
  use.optimizer_bytes =
      Saturate(weights * TorchRecOptimizerMultiplier(request.optimizer,
                                                     static_cast<double>(table.embedding_dim)));
  use.input_bytes = Saturate(ids * 8);
  use.output_bytes = Saturate(vectors * static_cast<double>(cols) * element);
  return use;
}

}  // namespace

MemoryUse& MemoryUse::operator+=(const MemoryUse& other) {
  AddSaturating(weights_bytes, other.weights_bytes);
  AddSaturating(optimizer_bytes, other.optimizer_bytes);
  AddSaturating(input_bytes, other.input_bytes);
  AddSaturating(output_bytes, other.output_bytes);
  AddSaturating(reserve_bytes, other.reserve_bytes);
  AddSaturating(cache_state_bytes, other.cache_state_bytes);
  AddSaturating(host_weights_bytes, other.host_weights_bytes);
  AddSaturating(host_optimizer_bytes, other.host_optimizer_bytes);
  return *this;
}

namespace {

// The same, were the table in device memory.
MemoryUse DeviceMemory(const PlanRequest& request, const Table& table, const ShardLayout& layout,
                       std::int64_t rows, std::int64_t cols) {
  if (request.memory.rule == MemoryRule::kTorchRec) {
    return TorchRecMemory(request, table, layout, rows, cols);
  }
  const double r = static_cast<double>(rows);
  const double c = static_cast<double>(cols);
  const double weights = r * c * static_cast<double>(ElementBytes(table.weight_dtype));
  MemoryUse use;
  use.weights_bytes = Saturate(weights);
  if (request.memory.rule == MemoryRule::kWeightsOnly) return use;
  const bool dense = layout.kernel == ComputeKernel::kDense;
  use.optimizer_bytes =
      Saturate(OptimizerBytes(request.optimizer, weights, r) + (dense ? weights : 0));
  double batch = static_cast<double>(request.global_batch_size);
  if (layout.type == ShardingType::kDataParallel) batch /= request.topology.num_ranks();
  double ids = batch * table.pooling_factor;
  if (CutsRows(layout.type)) ids *= r / static_cast<double>(table.num_embeddings);
  use.input_bytes = Saturate(ids * (table.weighted ? 12 : 8));
  use.output_bytes = rows == 0 ? 0 : Saturate(batch * c * 4);
  return use;
}

// Of a cache of rows (FBGEMM's; calculate_shard_storages of TorchRec): a slot's index for each row
// of the table, keys and times of use for each row that the cache holds.
constexpr double kCacheBytesPerRow = 4;
constexpr double kCacheBytesPerSlot = 16;

}  // namespace

MemoryUse ShardMemory(const PlanRequest& request, const Table& table, const ShardLayout& layout,
                      std::int64_t rows, std::int64_t cols) {
  MemoryUse use = DeviceMemory(request, table, layout, rows, cols);
  if (!IsInHostMemory(layout.kernel)) return use;
  const double cached = layout.cache_load_factor;  // 0 without a cache
  use.host_weights_bytes = use.weights_bytes;
  use.host_optimizer_bytes = use.optimizer_bytes;
  use.weights_bytes = Saturate(cached * static_cast<double>(use.weights_bytes));
  use.optimizer_bytes = Saturate(cached * static_cast<double>(use.optimizer_bytes));
  if (cached > 0 && request.memory.rule != MemoryRule::kWeightsOnly) {
    use.cache_state_bytes =
        Saturate(static_cast<double>(rows) * (kCacheBytesPerRow + kCacheBytesPerSlot * cached));
  }
  return use;
}

MemoryUse ShardMemory(const PlanRequest& request, const Table& table, std::int64_t rows,
                      std::int64_t cols) {
  return ShardMemory(request, table, ShardLayout{}, rows, cols);
}

std::int64_t ReserveBytes(const MemoryModel& memory, std::int64_t capacity_bytes) {
  return Saturate(memory.reserve_fraction * static_cast<double>(capacity_bytes)) +
         memory.reserve_bytes;
}

}  // namespace neuroshard
