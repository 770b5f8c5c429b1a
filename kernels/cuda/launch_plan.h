// Launch plans: the blocks of a launch, the memory that they share, and the layout of one batch in
// it: ids, offsets, weights, and the room that a backward pass needs for them. Depends on how many
// ids there are, not on which; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"
#include "kernels/api/embedding_op.h"
#include "kernels/cuda/launches.h"

namespace neuroshard::cuda {

// Gives arrays their places in one block of memory, one behind the other.
class MemoryLayout {
 public:
  static constexpr std::int64_t kAlignmentBytes = 256;
  // Counts that are beyond any machine make bytes() stay there instead of overflowing.
  std::int64_t Take(std::int64_t count, std::int64_t element_bytes);
  // The array that *pointer, which must stay where it is, points to once there is the block.
  template <typename T>
  void Take(std::int64_t count, T** pointer, std::int64_t element_bytes = sizeof(T)) {
    placed_.push_back([pointer, place = Take(count, element_bytes)](std::byte* block) {
      *pointer = reinterpret_cast<T*>(block + place);
    });
  }
  std::int64_t bytes() const { return bytes_; }
  // The block, of bytes() bytes.
  void PlaceAt(std::byte* block) const {
    for (const auto& place : placed_) place(block);
  }

 private:
  std::int64_t bytes_ = 0;
  std::vector<std::function<void(std::byte*)>> placed_;
};

// `type` must be one of a spec that CheckSpec lets through.
NumberType TypeOf(DataType type);
inline std::int64_t VectorsOf(std::int64_t cols) { return (cols + kVector - 1) / kVector; }

// The blocks of a table in a launch; of a cache its sets, which take turns in the blocks of
// CacheBlocks.
std::int64_t BlocksOf(const PoolTable& table);
std::int64_t BlocksOf(const SegmentTable& table);
std::int64_t BlocksOf(const GatherTable& table);
std::int64_t BlocksOf(const KeyTable& table);
std::int64_t BlocksOf(const FillTable& table);
std::int64_t BlocksOf(const LookupTable& table);
std::int64_t BlocksOf(const CacheKeyTable& table);
std::int64_t BlocksOf(const UpdateTable& table);
inline std::int64_t BlocksOf(const CacheTable& table) { return table.sets; }
std::int64_t CacheBlocks(std::int64_t keys);

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

// The shape of one table's batch, on which places and launches depend.
struct BatchShape {
  std::int64_t ids = 0;
  bool weighted = false;
  LongBags long_bags;     // of a pooled table
  std::int64_t runs = 0;  // of a plan
};

BatchShape ShapeOf(const LookupBatch& batch, bool pooled);
// The shape of a planned batch, without making ids: bags are known in closed form.
BatchShape ShapeOf(const LookupPlan& plan, bool pooled);

// The arrays of one batch, in the batch's memory.
struct BatchArrays {
  struct Level {
    std::int64_t entries = 0;
    std::uint32_t* keys = nullptr;
    std::uint8_t* filled = nullptr;
    float* partials = nullptr;
  };
  struct Table {
    std::int64_t first_entry = 0, first_run = 0;
    std::int64_t *ids = nullptr, *offsets = nullptr;
    float* weights = nullptr;  // null: the ids have none
    std::int64_t *segment_begins = nullptr, *segment_ends = nullptr;
    std::int64_t *first_segments = nullptr, *long_bags = nullptr;
    float* segment_sums = nullptr;
    float *output = nullptr, *gradient = nullptr;  // without pooling: a padded row an id each
    std::int64_t first_cache_key = 0;              // among those of all tables
    std::vector<Level> levels = {};                // the first one: entries only
  };
  std::vector<Table> tables;
  std::int64_t entries = 0;
  RankRun* runs = nullptr;  // those of all plans
  bool scaled = false;      // some gradient is multiplied by something
  std::uint32_t *keys = nullptr, *sorted_keys = nullptr;
  std::byte *occurrences = nullptr, *sorted_occurrences = nullptr;
  std::int64_t cache_entries = 0;  // ids of tables with a cache
  std::uint64_t *cache_keys = nullptr, *sorted_cache_keys = nullptr;
  std::int64_t* num_cache_keys = nullptr;
  // Room for the sorts, as large as they say. PlaceBatch leaves it alone.
  std::byte* scratch = nullptr;
  std::int64_t scratch_bytes = 0;
};

// Fills in `batch`, which must stay where it is until the layout is placed. One shape a table.
void PlaceBatch(const EmbeddingOpSpec& spec, const std::vector<BatchShape>& shapes,
                BatchArrays* batch, MemoryLayout* layout);

}  // namespace neuroshard::cuda
