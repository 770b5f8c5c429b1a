#include "kernels/cuda/launch_plan.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/cached_rows.h"
#include "kernels/cuda/generated_lookups.h"
#include "kernels/cuda/initial_values.h"
#include "kernels/cuda/row_keys.h"

namespace neuroshard::cuda {
namespace {

constexpr std::int64_t kFarBytes = std::numeric_limits<std::int64_t>::max() / 4;

std::int64_t CeilOfQuotient(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
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
    case DataType::kFp8:  // CheckSpec has refused it, and int8
    case DataType::kInt8:
      break;
  }
  return NumberType::kFp32;
}

std::int64_t PoolBlocks(std::int32_t vectors, std::int64_t bags, std::int32_t bags_per_thread) {
  return CeilOfQuotient(CeilOfQuotient(bags, bags_per_thread), BagsPerBlock(vectors));
}

std::int64_t GatherBlocks(std::int32_t vectors, std::int64_t ids) {
  return CeilOfQuotient(CeilOfQuotient(ids, kRowsInFlight), BagsPerBlock(vectors));
}

std::int64_t KeyBlocks(std::int64_t entries) { return CeilOfQuotient(entries, kEntriesPerBlock); }

std::int64_t FillBlocks(std::int64_t rows, std::int32_t vectors) {
  return CeilOfQuotient(rows * vectors, kFillVectorsPerBlock);
}

std::int64_t LookupBlocks(std::int64_t lookups, std::int64_t batch_size) {
  return CeilOfQuotient(std::max(lookups, batch_size + 1), kLookupsPerBlock);
}

std::int64_t CacheKeyBlocks(std::int64_t ids) { return CeilOfQuotient(ids, kCacheKeysPerBlock); }

std::int64_t CacheBlocks(std::int64_t keys) {
  return CeilOfQuotient(CeilOfQuotient(keys, kCacheChunk), kCacheChunksPerBlock);
}

std::int64_t UpdateBlocks(std::int32_t vectors, std::int64_t entries) {
  return CeilOfQuotient(Chunks(entries), kThreads / UpdateLanes(vectors));
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

}  // namespace neuroshard::cuda
