#include "kernels/cuda/launch_plan.h"

#include <algorithm>
#include <limits>

namespace neuroshard::cuda {
namespace {

constexpr std::int64_t kFarBytes = std::numeric_limits<std::int64_t>::max() / 4;

std::int64_t CeilOfQuotient(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

bool NeedsScale(const EmbeddingTableSpec& table, bool weighted) {
  return table.pooling_mode == PoolingMode::kMean || weighted;
}

}  // namespace

std::int64_t MemoryLayout::Take(std::int64_t count, std::int64_t element_bytes) {
  const std::int64_t place = bytes_;
  std::int64_t size;
  if (__builtin_mul_overflow(count, element_bytes, &size) || size > kFarBytes / 2) {
    bytes_ = kFarBytes;
  } else {
    size = CeilOfQuotient(size, kAlignmentBytes) * kAlignmentBytes;
    bytes_ = std::min(kFarBytes, bytes_ + size);
  }
  return place;
}

NumberType TypeOf(DataType type) {
  switch (type) {
    case DataType::kFp16:
      return NumberType::kFp16;
    case DataType::kBf16:
      return NumberType::kBf16;
    case DataType::kFp32:
    case DataType::kFp8:  // CheckSpec has refused it and all below
    case DataType::kInt8:
    case DataType::kInt4:
    case DataType::kInt2:
      break;
  }
  return NumberType::kFp32;
}

std::int64_t BlocksOf(const PoolTable& table) {
  return CeilOfQuotient(CeilOfQuotient(table.bags, table.bags_per_thread),
                        BagsPerBlock(table.vectors));
}

std::int64_t BlocksOf(const SegmentTable& table) {
  return CeilOfQuotient(table.bags, BagsPerBlock(table.vectors));
}

std::int64_t BlocksOf(const GatherTable& table) {
  return CeilOfQuotient(CeilOfQuotient(table.count, kRowsInFlight), BagsPerBlock(table.vectors));
}

std::int64_t BlocksOf(const KeyTable& table) {
  return CeilOfQuotient(table.entries, kEntriesPerBlock);
}

std::int64_t BlocksOf(const FillTable& table) {
  return CeilOfQuotient(table.rows * table.vectors, kFillVectorsPerBlock);
}

std::int64_t BlocksOf(const LookupTable& table) {
  return CeilOfQuotient(std::max(table.rule.lookups, table.rule.batch_size + 1), kLookupsPerBlock);
}

std::int64_t BlocksOf(const CacheKeyTable& table) {
  return CeilOfQuotient(table.count, kCacheKeysPerBlock);
}

std::int64_t BlocksOf(const UpdateTable& table) {
  return CeilOfQuotient(Chunks(table.entries), kThreads / UpdateLanes(table.vectors));
}

std::int64_t CacheBlocks(std::int64_t keys) {
  return CeilOfQuotient(CeilOfQuotient(keys, kCacheChunk), kCacheChunksPerBlock);
}

StatusOr<std::vector<std::int32_t>> FirstBlocks(const std::vector<std::int64_t>& blocks) {
  std::vector<std::int32_t> first = {0};
  std::int64_t total = 0;
  for (const std::int64_t count : blocks) {
    total += count;
    if (total > std::numeric_limits<std::int32_t>::max()) {
      return InvalidArgument("the batch needs more than 2^31 - 1 blocks of {} threads", kThreads);
    }
    first.push_back(static_cast<std::int32_t>(total));
  }
  return first;
}

std::vector<std::int64_t> LevelEntries(std::int64_t ids) {
  std::vector<std::int64_t> levels;
  if (ids == 0) return levels;
  levels.push_back(ids);
  while (Chunks(levels.back()) > 1) levels.push_back(2 * Chunks(levels.back()));
  return levels;
}

LongBags FindLongBags(const std::vector<std::int64_t>& offsets) {
  LongBags result;
  result.first_segment.push_back(0);
  for (std::size_t bag = 0; bag + 1 < offsets.size(); ++bag) {
    const std::int64_t begin = offsets[bag], end = offsets[bag + 1];
    if (end - begin <= kLongestBag) continue;
    result.bags.push_back(static_cast<std::int64_t>(bag));
    for (std::int64_t i = begin; i < end; i += kSegment) {
      result.begins.push_back(i);
      result.ends.push_back(std::min(end, i + kSegment));
    }
    result.first_segment.push_back(static_cast<std::int64_t>(result.begins.size()));
  }
  return result;
}

BatchShape ShapeOf(const LookupBatch& batch, bool pooled) {
  return {static_cast<std::int64_t>(batch.ids.size()), !batch.weights.empty(),
          pooled ? FindLongBags(batch.offsets) : LongBags(), 0};
}

BatchShape ShapeOf(const LookupPlan& plan, bool pooled) {
  const LookupRule& rule = plan.rule;
  std::vector<std::int64_t> offsets;  // only where some bags are long
  if (pooled && rule.LongestBag() > kLongestBag) {
    offsets.reserve(rule.batch_size + 1);
    for (std::int64_t b = 0; b <= rule.batch_size; ++b) offsets.push_back(rule.Offset(b));
  }
  return {rule.lookups, plan.weighted && rule.lookups > 0, FindLongBags(offsets),
          static_cast<std::int64_t>(plan.runs.size())};
}

void PlaceBatch(const EmbeddingOpSpec& spec, const std::vector<BatchShape>& shapes,
                BatchArrays* batch, MemoryLayout* layout) {
  batch->tables.resize(shapes.size());
  std::int64_t runs = 0;
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    const std::int64_t ids = shapes[t].ids;
    const auto segments = static_cast<std::int64_t>(shapes[t].long_bags.begins.size());
    const auto bags = static_cast<std::int64_t>(shapes[t].long_bags.bags.size());
    const std::int64_t row_bytes = VectorsOf(spec.tables[t].cols) * kVector * 4;
    BatchArrays::Table& table = batch->tables[t];
    table.first_entry = batch->entries;
    layout->Take(ids, &table.ids);
    layout->Take(spec.batch_size + 1, &table.offsets);
    if (shapes[t].weighted) layout->Take(ids, &table.weights);
    table.first_run = runs;
    runs += shapes[t].runs;
    layout->Take(segments, &table.segment_begins);
    layout->Take(segments, &table.segment_ends);
    layout->Take(bags + 1, &table.first_segments);
    layout->Take(bags, &table.long_bags);
    layout->Take(segments, &table.segment_sums, row_bytes);
    const bool pooled = spec.tables[t].pooling_mode != PoolingMode::kNone;
    layout->Take(pooled ? 0 : ids, &table.output, row_bytes);
    layout->Take(pooled ? 0 : ids, &table.gradient, row_bytes);
    for (const std::int64_t entries : LevelEntries(ids)) table.levels.push_back({entries});
    for (std::size_t l = 1; l < table.levels.size(); ++l) {
      BatchArrays::Level& level = table.levels[l];
      layout->Take(level.entries, &level.keys);
      layout->Take(level.entries, &level.filled);
      layout->Take(level.entries, &level.partials, row_bytes);
    }
    table.first_cache_key = batch->cache_entries;
    if (spec.tables[t].kernel == ComputeKernel::kFusedUvmCaching) batch->cache_entries += ids;
    batch->entries += ids;
    batch->scaled = batch->scaled || NeedsScale(spec.tables[t], shapes[t].weighted);
  }
  const std::int64_t occurrence =
      batch->scaled ? sizeof(ScaledOccurrence) : sizeof(PlainOccurrence);
  layout->Take(runs, &batch->runs);
  layout->Take(batch->entries, &batch->keys);
  layout->Take(batch->entries, &batch->occurrences, occurrence);
  layout->Take(batch->entries, &batch->sorted_keys);
  layout->Take(batch->entries, &batch->sorted_occurrences, occurrence);
  layout->Take(batch->cache_entries, &batch->cache_keys);
  layout->Take(batch->cache_entries, &batch->sorted_cache_keys);
  layout->Take(batch->cache_entries > 0 ? 1 : 0, &batch->num_cache_keys);
}

}  // namespace neuroshard::cuda
