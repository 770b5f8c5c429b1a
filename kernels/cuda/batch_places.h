// Layout of one batch in device memory: ids, offsets, weights, and the room that a backward pass
// needs for them. Depends on how many ids there are, not on which; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/api/embedding_op.h"
#include "kernels/cuda/launch_plan.h"

namespace neuroshard::cuda {

// The shape of one table's batch, on which places and launches depend.
struct BatchShape {
  std::int64_t ids = 0;
  bool weighted = false;
  LongBags long_bags;     // of a pooled table
  std::int64_t runs = 0;  // of a plan
};

BatchShape ShapeOf(const LookupBatch& batch, bool pooled);
// Without making ids: bags are known in closed form.
BatchShape ShapeOf(const LookupPlan& plan, bool pooled);

// Bytes from the beginning of the batch's memory.
struct BatchPlaces {
  struct Level {
    std::int64_t entries, keys, filled, partials;
  };
  struct Table {
    std::int64_t first_entry, first_run, ids, offsets, weights;
    std::int64_t segment_begins, segment_ends, first_segments, long_bags, segment_sums;
    std::int64_t output, gradient;  // without pooling: a padded row an id each
    std::int64_t first_cache_key;   // among those of all tables
    std::vector<Level> levels;      // the first one: entries only
  };
  std::vector<Table> tables;
  std::int64_t entries = 0;
  std::int64_t runs = 0;  // where those of all plans are
  bool scaled = false;    // some gradient is multiplied by something
  std::int64_t keys, occurrences, sorted_keys, sorted_occurrences;
  std::int64_t cache_entries = 0;  // ids of tables with a cache
  std::int64_t cache_keys, sorted_cache_keys, num_cache_keys;
  std::int64_t scratch, scratch_bytes;  // at the end, as large as the sort says; here 0
};

// One shape a table.
BatchPlaces PlaceBatch(const EmbeddingOpSpec& spec, const std::vector<BatchShape>& shapes);

}  // namespace neuroshard::cuda
