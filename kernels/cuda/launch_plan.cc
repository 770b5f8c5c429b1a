#include "kernels/cuda/launch_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

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

BatchPlaces PlaceBatch(const EmbeddingOpSpec& spec, const std::vector<BatchShape>& shapes) {
  BatchPlaces places;
  MemoryLayout layout;
  std::int64_t runs = 0;
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    const std::int64_t ids = shapes[t].ids;
    const auto segments = static_cast<std::int64_t>(shapes[t].long_bags.begins.size());
    const auto bags = static_cast<std::int64_t>(shapes[t].long_bags.bags.size());
    const std::int64_t row_floats = VectorsOf(spec.tables[t].cols) * kVector;
    BatchPlaces::Table table;
    table.first_entry = places.entries;
    table.ids = layout.Take(ids, 8);
    table.offsets = layout.Take(spec.batch_size + 1, 8);
    table.weights = layout.Take(shapes[t].weighted ? ids : 0, 4);
    table.first_run = runs;
    runs += shapes[t].runs;
    table.segment_begins = layout.Take(segments, 8);
    table.segment_ends = layout.Take(segments, 8);
    table.first_segments = layout.Take(bags + 1, 8);
    table.long_bags = layout.Take(bags, 8);
    table.segment_sums = layout.Take(segments, row_floats * 4);
    const bool pooled = spec.tables[t].pooling_mode != PoolingMode::kNone;
    table.output = layout.Take(pooled ? 0 : ids, row_floats * 4);
    table.gradient = layout.Take(pooled ? 0 : ids, row_floats * 4);
    for (const std::int64_t entries : LevelEntries(ids)) {
      const std::int64_t kept = table.levels.empty() ? 0 : entries;
      table.levels.push_back(
          {entries, layout.Take(kept, 4), layout.Take(kept, 1), layout.Take(kept, row_floats * 4)});
    }
    table.first_cache_key = places.cache_entries;
    if (spec.tables[t].kernel == ComputeKernel::kFusedUvmCaching) places.cache_entries += ids;
    places.entries += ids;
    places.scaled = places.scaled || NeedsScale(spec.tables[t], shapes[t].weighted);
    places.tables.push_back(std::move(table));
  }
  const std::int64_t occurrence =
      places.scaled ? sizeof(ScaledOccurrence) : sizeof(PlainOccurrence);
  places.runs = layout.Take(runs, sizeof(RankRun));
  places.keys = layout.Take(places.entries, 4);
  places.occurrences = layout.Take(places.entries, occurrence);
  places.sorted_keys = layout.Take(places.entries, 4);
  places.sorted_occurrences = layout.Take(places.entries, occurrence);
  places.cache_keys = layout.Take(places.cache_entries, 8);
  places.sorted_cache_keys = layout.Take(places.cache_entries, 8);
  places.num_cache_keys = layout.Take(places.cache_entries > 0 ? 1 : 0, 8);
  places.scratch = layout.bytes();
  places.scratch_bytes = 0;
  return places;
}

}  // namespace neuroshard::cuda
