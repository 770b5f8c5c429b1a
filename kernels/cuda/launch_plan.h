// Launch plans: the blocks of a launch and the memory that they share; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"
#include "kernels/cuda/pooling.h"
#include "kernels/cuda/row_update.h"

namespace neuroshard::cuda {

// Places of arrays in one block of device memory.
class MemoryLayout {
 public:
  static constexpr std::int64_t kAlignmentBytes = 256;
  // Counts that are beyond any machine make bytes() stay there instead of overflowing.
  std::int64_t Take(std::int64_t count, std::int64_t element_bytes);
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

// `type` must be one of a spec that CheckSpec lets through.
NumberType TypeOf(DataType type);
inline std::int64_t VectorsOf(std::int64_t cols) { return (cols + kVector - 1) / kVector; }

std::int64_t PoolBlocks(std::int32_t vectors, std::int64_t bags, std::int32_t bags_per_thread = 1);
std::int64_t GatherBlocks(std::int32_t vectors, std::int64_t ids);
std::int64_t KeyBlocks(std::int64_t entries);
std::int64_t FillBlocks(std::int64_t rows, std::int32_t vectors);
std::int64_t LookupBlocks(std::int64_t lookups, std::int64_t batch_size);
std::int64_t CacheKeyBlocks(std::int64_t ids);
std::int64_t CacheBlocks(std::int64_t keys);
std::int64_t UpdateBlocks(std::int32_t vectors, std::int64_t entries);

// Exclusive sums of the tables' blocks, and the total at the end. INVALID_ARGUMENT beyond 2^31 - 1,
// the largest launch.
StatusOr<std::vector<std::int32_t>> FirstBlocks(const std::vector<std::int64_t>& blocks);

// Entries of each level of the backward pass, from the table's ids to the level that has one chunk;
// empty for no ids.
std::vector<std::int64_t> LevelEntries(std::int64_t ids);

// The bags longer than kLongestBag, in segments of kSegment ids.
struct LongBags {
  std::vector<std::int64_t> bags;
  std::vector<std::int64_t> first_segment;  // one more than bags
  std::vector<std::int64_t> begins, ends;   // of the segments, positions in the ids
};
LongBags FindLongBags(const std::vector<std::int64_t>& offsets);

}  // namespace neuroshard::cuda
