#include "kernels/cuda/gpu_row_caches.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace neuroshard::cuda {
namespace {

int BitsFor(std::int64_t count) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1)));
}

// All of it padding, which is 0 to the bit; arrays end at a multiple of a vector.
FillTable ZerosAt(void* memory, std::int64_t bytes) {
  return {memory, NumberType::kFp32, VectorsOf(bytes / 4), 1, 0, 1, 0, 0};
}

}  // namespace

GpuRowCaches::GpuRowCaches(std::shared_ptr<Gpu> gpu, const EmbeddingOpSpec& spec)
    : gpu_(std::move(gpu)) {
  for (std::size_t t = 0; t < spec.tables.size(); ++t) {
    const EmbeddingTableSpec& table = spec.tables[t];
    if (table.kernel != ComputeKernel::kFusedUvmCaching) continue;
    Cache& cache = caches_.emplace_back();
    cache.table = t;
    cache.rows = table.rows;
    cache.slots = CacheSlots(table.rows, table.cache_load_factor);
    cache.on_device.type = TypeOf(table.weight_dtype);
    cache.on_device.sets = cache.slots / kCacheWays;
    cache.on_device.vectors = static_cast<std::int32_t>(VectorsOf(table.cols));
    row_bits_ = std::max(row_bits_, BitsFor(table.rows));
  }
}

void GpuRowCaches::TakeMemory(MemoryLayout& layout) {
  for (Cache& cache : caches_) {
    CacheTable& table = cache.on_device;
    layout.Take(cache.slots, &table.slots, cache.row_bytes());
    layout.Take(cache.rows, &table.slot_of_row);
    layout.Take(cache.slots, &table.row_of_slot);
    layout.Take(cache.slots, &table.batch_of_slot);
  }
  if (!empty()) layout.Take(kCacheTotals, &totals_);
}

std::vector<FillTable> GpuRowCaches::Zeros() const {
  if (empty()) return {};
  std::vector<FillTable> zeros = {ZerosAt(totals_, kCacheTotals * sizeof(CacheTotals))};
  for (const Cache& cache : caches_) {
    zeros.push_back(ZerosAt(cache.on_device.slot_of_row, cache.rows * 4));
    zeros.push_back(ZerosAt(cache.on_device.batch_of_slot, cache.slots * 8));
  }
  return zeros;
}

const GpuRowCaches::Cache* GpuRowCaches::Find(std::size_t table) const {
  const auto found =
      std::ranges::find_if(caches_, [table](const Cache& cache) { return cache.table == table; });
  return found == caches_.end() ? nullptr : &*found;
}

const CacheTable* GpuRowCaches::of(std::size_t table) const {
  const Cache* const cache = Find(table);
  return cache == nullptr ? nullptr : &cache->on_device;
}

void GpuRowCaches::SetRows(std::size_t table, void* rows) {
  for (Cache& cache : caches_) {
    if (cache.table == table) cache.on_device.rows = rows;
  }
}

int GpuRowCaches::KeyBits() const {
  std::int64_t sets = 0;
  for (const Cache& cache : caches_) sets += cache.on_device.sets;
  return std::max(1, row_bits_ + BitsFor(sets));
}

StatusOr<std::int64_t> GpuRowCaches::ScratchBytes(std::int64_t entries) const {
  if (entries == 0) return 0;
  if (entries > std::numeric_limits<std::int32_t>::max()) {
    return InvalidArgument("{} ids of tables with a cache, a gpu takes fewer than 2^31", entries);
  }
  return gpu_->ScratchBytes(DistinctLaunch{.entries = entries, .key_bits = KeyBits()});
}

Status GpuRowCaches::Plan(const std::vector<BatchShape>& shapes, const BatchArrays& batch,
                          LaunchArrays& arrays) {
  fetched_ = false;
  std::vector<CacheKeyTable> key_tables;
  std::vector<CacheTable> tables;
  std::int64_t first_set = 0;
  for (const Cache& cache : caches_) {
    const BatchArrays::Table& place = batch.tables[cache.table];
    const std::int64_t sets = cache.on_device.sets;
    key_tables.push_back(
        {place.ids, shapes[cache.table].ids, place.first_cache_key, first_set, sets});
    tables.push_back(cache.on_device);
    first_set += sets;
  }
  NS_RETURN_IF_ERROR(arrays.Add(key_tables, &make_keys_));
  NS_RETURN_IF_ERROR(arrays.Add(tables, &use_.caches));
  keep_distinct_ = {.entries = batch.cache_entries,
                    .key_bits = KeyBits(),
                    .keys = batch.cache_keys,
                    .sorted_keys = batch.sorted_cache_keys,
                    .num_kept = batch.num_cache_keys,
                    .scratch = batch.scratch,
                    .scratch_bytes = batch.scratch_bytes};
  make_keys_.row_bits = row_bits_;
  make_keys_.keys = keep_distinct_.keys;
  use_.keys = keep_distinct_.keys;
  use_.num_keys = keep_distinct_.num_kept;
  use_.blocks = CacheBlocks(batch.cache_entries);
  use_.row_bits = row_bits_;
  use_.totals = totals_;
  return absl::OkStatus();
}

void GpuRowCaches::Fetch() {
  fetched_ = true;
  if (keep_distinct_.empty()) return;
  gpu_->Launch(make_keys_);
  gpu_->Launch(keep_distinct_);
  ++use_.batch;
  gpu_->Launch(use_);
}

StatusOr<CacheCounts> GpuRowCaches::Counts() const {
  CacheCounts counts;
  if (empty()) return counts;
  std::vector<CacheTotals> totals(kCacheTotals);
  NS_RETURN_IF_ERROR(gpu_->CopyOut(totals.data(), totals_, kCacheTotals * sizeof(CacheTotals)));
  for (const Cache& cache : caches_) counts.free_slots += cache.slots;
  for (const CacheTotals& part : totals) {
    counts.distinct_rows += static_cast<std::int64_t>(part.distinct_rows);
    counts.missed_rows += static_cast<std::int64_t>(part.missed_rows);
    counts.free_slots -= static_cast<std::int64_t>(part.filled_slots);
  }
  return counts;
}

}  // namespace neuroshard::cuda
