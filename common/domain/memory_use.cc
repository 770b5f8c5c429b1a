#include "common/domain/memory_use.h"

#include <cmath>

namespace neuroshard {
namespace {

// Above the largest device that a request can have (2^50), so that what saturates fits nowhere; far
// enough below the type's end that sums of many do not overflow.
constexpr double kSaturated = 0x1.0p52;

std::int64_t Saturate(double bytes) {
  return static_cast<std::int64_t>(std::min(std::ceil(bytes), kSaturated));
}

// Optimizer state as a multiple of the weights' bytes (TorchRec's names of optimizer classes).
double TorchRecOptimizerMultiplier(Optimizer optimizer, double table_cols) {
  switch (optimizer) {
    case Optimizer::kSgd:
    case Optimizer::kNone:
      return 0;
    case Optimizer::kRowwiseAdagrad:
      return 1 / table_cols;
    case Optimizer::kAdam:
      return 2;
    case Optimizer::kAdagrad:
    case Optimizer::kPartialRowwiseAdam:  // whatever TorchRec does not know counts once
    case Optimizer::kLamb:
    case Optimizer::kLarsSgd:
      return 1;
  }
  return 0;
}

// The optimizer state of rows on SSD, on the device (EmbOptimType.ssd_state_splits of FBGEMM 1.9):
// Adam counts each row's updates besides.
OptimizerState SsdStateOf(Optimizer optimizer) {
  OptimizerState state = StateOf(optimizer);
  if (optimizer == Optimizer::kAdam) state.row_bytes += sizeof(float);
  return state;
}

// The share of a shard's rows that so many bytes hold.
double ShareOf(std::int64_t bytes, const Table& table, std::int64_t rows, std::int64_t cols) {
  if (rows == 0) return 0;
  const double row_bytes =
      ValueBytes(table.weight_dtype, cols) + RowBytesBesides(table.weight_dtype);
  return std::min(1.0, static_cast<double>(bytes) / (static_cast<double>(rows) * row_bytes));
}

// The rows that memory is taken for, of a shard's rows: a hash table that is cut in rows has its
// spare ones everywhere.
double AllocatedRows(const Table& table, std::int64_t rows) {
  const double used = static_cast<double>(rows);
  if (table.allocated_rows == 0) return used;
  return used *
         (static_cast<double>(table.allocated_rows) / static_cast<double>(table.num_embeddings));
}

// Batches whose ids are in memory at once (calculate_pipeline_io_cost of TorchRec 1.9.2).
double BatchesInFlight(const PlanRequest& request) {
  if (request.pipeline_type == PipelineType::kTrainSparseDist) return 2;
  return request.pipeline_type == PipelineType::kTrainPrefetchSparseDist ? 3 : 1;
}

// Rows of a dynamic kernel, in place of what was counted for them: values with their optimizer state
// in 16 bytes each, in whole groups of 16 rows a shard. Products and sums are in TorchEasyRec's
// order, so that what is rounded up is the same number.
void CountDynamicRows(const Table& table, const ShardLayout& layout, double optimizer_multiplier,
                      std::int64_t rows, std::int64_t cols, MemoryUse& use) {
  constexpr double kKeyBytes = 8, kScoreBytes = 8, kDigestBytes = 1;
  constexpr double kBucketBytes = 4, kRowsOfBucket = 128;  // DynamicEmb's default
  const auto aligned = [](double value) { return std::ceil(value / 16) * 16; };
  const double value = aligned(std::ceil(static_cast<double>(cols) * (1 + optimizer_multiplier) *
                                         ElementBytes(table.weight_dtype)));
  const double slots = aligned(AllocatedRows(table, rows));
  const double share = layout.cache_load_factor;
  const double in_host = layout.kernel == ComputeKernel::kDynamicHybrid ? 1 - share : 1;
  const double beside = kKeyBytes + kScoreBytes + kDigestBytes + kBucketBytes / kRowsOfBucket +
                        static_cast<double>(table.extra_bytes_per_row);
  use.weights = use.optimizer = use.caches = {};
  use.weights[MemoryTier::kDevice] = Saturate(slots * (value * share + beside));
  use.weights[MemoryTier::kHost] = Saturate(slots * (value * in_host));
}

// And what prefetching rows into a cache takes for a moment, in bytes of ids (the same).
double PrefetchBatches(const PlanRequest& request, const ShardLayout& layout) {
  constexpr double kBurst = 1 + 6;  // one pass
  return request.pipeline_type == PipelineType::kTrainPrefetchSparseDist &&
                 HasCache(layout.kernel) && !IsDynamic(layout.kernel)
             ? kBurst
             : 0;
}

// Keys and times of use of each row that a cache of rows holds.
constexpr double kCacheBytesPerSlot = 16;

// The state of a cache of rows (FBGEMM's; calculate_shard_storages of TorchRec): the index of a slot
// for each row of the table, and kCacheBytesPerSlot for each slot.
std::int64_t CacheStateBytes(const ShardLayout& layout, std::int64_t rows) {
  constexpr double kBytesPerRow = 4;
  if (!HasCache(layout.kernel)) return 0;
  return Saturate(static_cast<double>(rows) *
                  (kBytesPerRow + layout.cache_load_factor * kCacheBytesPerSlot));
}

// TorchRec counts a rank's samples, divides their ids by the ranks that share the rows, and then
// multiplies by all ranks; products are in its order, so that what it rounds up is the same number.
MemoryUse TorchRecMemory(const PlanRequest& request, const Table& table, const ShardLayout& layout,
                         std::int64_t rows, std::int64_t cols) {
  if (rows == 0) return {};
  const double ranks = request.topology.num_ranks();
  const double element = ElementBytes(table.weight_dtype);
  const double batch = static_cast<double>(request.global_batch_size) / ranks;
  const double peers = layout.type == ShardingType::kDataParallel ? 1 : ranks;
  const double ids =
      table.pooling_factor * batch / EqualBlocks(layout, rows, table.num_embeddings) * peers;
  const VectorCount count = VectorsOf(table);
  const double vectors = table.kind == TableKind::kEmbedding
                             ? ids
                             : (count.of_sample * batch + count.of_batch / ranks) * peers;
  const double allocated = AllocatedRows(table, rows);
  const double values = allocated * static_cast<double>(cols);
  const double multiplier = TorchRecOptimizerMultiplier(request.optimizer_of(table),
                                                        static_cast<double>(table.embedding_dim));
  MemoryUse use;
  const double beside = allocated * static_cast<double>(table.extra_bytes_per_row);
  const MemoryTier tier = TierOf(layout.kernel);
  use.weights[tier] = Saturate(values * element + beside);
  use.optimizer[tier] = Saturate(values * element * multiplier);
  if (tier == MemoryTier::kHost) {
    // The cache of the whole table, rounded to even, and the shard's part of it. Python divides
    // integers exactly.
    const double table_values =
        AllocatedRows(table, table.num_embeddings) * static_cast<double>(table.embedding_dim);
    const double cache = std::nearbyint(table_values * element * layout.cache_load_factor);
    const double cached =
        std::ceil(static_cast<double>(static_cast<long double>(cache) * values / table_values));
    use.weights[MemoryTier::kDevice] = Saturate(cached);
    use.optimizer[MemoryTier::kDevice] = Saturate(cached * multiplier);
    use.caches[MemoryTier::kDevice] = CacheStateBytes(layout, rows);
  } else if (tier == MemoryTier::kSsd) {
    use.caches[tier] = CacheStateBytes(layout, rows);
    const double cache = static_cast<double>(table.num_embeddings) * layout.cache_load_factor *
                         element * static_cast<double>(table.embedding_dim);
    use.weights[MemoryTier::kDevice] =
        std::min(Saturate(cache), table.max_l1_cache_bytes.value_or(0));
  }
  if (IsDynamic(layout.kernel)) CountDynamicRows(table, layout, multiplier, rows, cols, use);
  const double input = std::ceil(ids * 8);
  use.input_bytes = Saturate(input * (BatchesInFlight(request) + PrefetchBatches(request, layout)));
  // Pipelines are taken to have no outputs in memory where it is fullest.
  if (BatchesInFlight(request) > 1) return use;
  use.output_bytes = Saturate(vectors * static_cast<double>(cols) *
                              ElementBytes(table.output_dtype.value_or(table.weight_dtype)));
  return use;
}

// Memory as if nothing were stashed.
MemoryUse MemoryOf(const PlanRequest& request, const Table& table, const ShardLayout& layout,
                   std::int64_t rows, std::int64_t cols) {
  if (request.memory.rule == MemoryRule::kTorchRec) {
    return TorchRecMemory(request, table, layout, rows, cols);
  }
  constexpr double kIdBytes = 8;
  constexpr double kIdWeightBytes = 4;
  constexpr double kOutputBytes = 4;  // FBGEMM's lookups give floats unless told otherwise
  const double r = AllocatedRows(table, rows);
  const double c = static_cast<double>(cols);
  double weights = r * ValueBytes(table.weight_dtype, cols);
  weights += r * RowBytesBesides(table.weight_dtype);
  const bool trains = request.optimizer != Optimizer::kNone;
  const double gradient = trains && layout.kernel == ComputeKernel::kDense ? weights : 0;
  const double beside = r * static_cast<double>(table.extra_bytes_per_row);
  const MemoryTier tier = TierOf(layout.kernel);
  const bool on_ssd = tier == MemoryTier::kSsd;
  const double cached = CachedShare(table, layout, rows, cols);
  MemoryUse use;
  use.weights[MemoryTier::kDevice] = Saturate(cached * weights);
  use.weights[tier] = Saturate(weights + beside);
  use.caches[MemoryTier::kHost] = Saturate(HostCachedShare(table, layout, rows, cols) * weights);
  if (request.memory.rule == MemoryRule::kWeightsOnly) {
    if (IsDynamic(layout.kernel)) CountDynamicRows(table, layout, 0, rows, cols, use);
    return use;
  }

  const Optimizer optimizer = request.optimizer_of(table);
  const OptimizerState state = on_ssd ? SsdStateOf(optimizer) : StateOf(optimizer);
  const bool updated_by_host = layout.kernel == ComputeKernel::kOffload;
  ByTier<double> states = {};
  states[on_ssd ? MemoryTier::kDevice : tier] += r * c * state.element_bytes;
  states[updated_by_host ? tier : MemoryTier::kDevice] += r * state.row_bytes;
  states[MemoryTier::kDevice] += gradient;
  for (const auto& [of, name] : kWords<MemoryTier>) use.optimizer[of] = Saturate(states[of]);
  use.caches[MemoryTier::kDevice] =
      on_ssd ? Saturate(r * cached * kCacheBytesPerSlot) : CacheStateBytes(layout, rows);
  if (IsDynamic(layout.kernel)) {
    CountDynamicRows(
        table, layout,
        TorchRecOptimizerMultiplier(optimizer, static_cast<double>(table.embedding_dim)), rows,
        cols, use);
  }

  double batch = static_cast<double>(request.global_batch_size);
  double bags = CountBags(table).Of(batch);
  if (layout.type == ShardingType::kDataParallel) {
    batch /= request.topology.num_ranks();
    bags /= request.topology.num_ranks();
  }
  double ids = batch * table.pooling_factor;
  if (CutsRows(layout.type)) {
    ids *= static_cast<double>(rows) / static_cast<double>(table.num_embeddings);
  }
  use.input_bytes = Saturate(
      ids * ((kIdBytes + (table.weighted ? kIdWeightBytes : 0)) * BatchesInFlight(request) +
             kIdBytes * PrefetchBatches(request, layout)));
  const double output_bytes = table.output_dtype ? ElementBytes(*table.output_dtype) : kOutputBytes;
  const double vectors = table.kind == TableKind::kEmbedding ? ids : bags;
  use.output_bytes = rows == 0 ? 0 : Saturate(vectors * c * output_bytes);
  return use;
}

}  // namespace

OptimizerState StateOf(Optimizer optimizer) {
  constexpr double kFloat = sizeof(float);
  switch (optimizer) {
    case Optimizer::kSgd:
    case Optimizer::kNone:
      return {};
    case Optimizer::kAdagrad:
    case Optimizer::kLarsSgd:
      return {kFloat, 0};
    case Optimizer::kRowwiseAdagrad:
      return {0, kFloat};
    case Optimizer::kAdam:
    case Optimizer::kLamb:
      return {2 * kFloat, 0};
    case Optimizer::kPartialRowwiseAdam:
      return {kFloat, kFloat};
  }
  return {};
}

TierBytes MemoryUse::by_tier() const {
  TierBytes bytes = {};
  bytes[MemoryTier::kDevice] = input_bytes + output_bytes + reserve_bytes;
  for (const auto& [tier, name] : kWords<MemoryTier>) {
    bytes[tier] += weights[tier] + optimizer[tier] + caches[tier];
  }
  return bytes;
}

MemoryUse& MemoryUse::operator+=(const MemoryUse& other) {
  for (const auto kind : {&MemoryUse::weights, &MemoryUse::optimizer, &MemoryUse::caches}) {
    for (const auto& [tier, name] : kWords<MemoryTier>) {
      AddBytes((this->*kind)[tier], (other.*kind)[tier]);
    }
  }
  AddBytes(input_bytes, other.input_bytes);
  AddBytes(output_bytes, other.output_bytes);
  AddBytes(reserve_bytes, other.reserve_bytes);
  AddBytes(stashed_bytes, other.stashed_bytes);
  return *this;
}

double CachedShare(const Table& table, const ShardLayout& layout, std::int64_t rows,
                   std::int64_t cols) {
  if (!HasCache(layout.kernel)) return 0;
  const double share = layout.cache_load_factor;
  if (TierOf(layout.kernel) != MemoryTier::kSsd || !table.max_l1_cache_bytes) return share;
  return std::min(share, ShareOf(*table.max_l1_cache_bytes, table, rows, cols));
}

double HostCachedShare(const Table& table, const ShardLayout& layout, std::int64_t rows,
                       std::int64_t cols) {
  if (TierOf(layout.kernel) != MemoryTier::kSsd) return 0;
  return ShareOf(table.l2_cache_bytes, table, rows, cols);
}

bool CanBeStashed(const ShardLayout& layout) {
  return layout.kernel == ComputeKernel::kFused && layout.type != ShardingType::kDataParallel;
}

MemoryUse ShardMemory(const PlanRequest& request, const Table& table, const ShardLayout& layout,
                      std::int64_t rows, std::int64_t cols) {
  MemoryUse use = MemoryOf(request, table, layout, rows, cols);
  if (!table.stash_weights || !CanBeStashed(layout)) return use;
  const double beside = AllocatedRows(table, rows) * static_cast<double>(table.extra_bytes_per_row);
  const std::int64_t weights = use.weights[MemoryTier::kDevice];
  use.stashed_bytes = std::max<std::int64_t>(0, weights - Saturate(beside));
  if (!request.topology.host_memory_bytes.empty()) {
    use.weights[MemoryTier::kHost] = use.stashed_bytes;
  }
  if (request.memory.only_dense) use.weights[MemoryTier::kDevice] -= use.stashed_bytes;
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
