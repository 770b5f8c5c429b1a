#include "kernels/cuda/batch_places.h"

#include <utility>

#include "kernels/cuda/pooling.h"
#include "kernels/cuda/row_keys.h"

namespace neuroshard::cuda {
namespace {

bool NeedsScale(const EmbeddingTableSpec& table, bool weighted) {
  return table.pooling_mode == PoolingMode::kMean || weighted;
}

}  // namespace

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
