#include "kernels/cpu/host_table.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/cpu/memory_arena.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;

std::int64_t BlockOf(std::int64_t a, std::int64_t b) {
  std::int64_t floats;
  if (__builtin_mul_overflow(a, b, &floats) || floats > kFar / 8) return kFar;
  return MemoryArena::BlockBytes(floats * 4);
}

std::int64_t SlotsOf(const EmbeddingTableSpec& table) {
  if (table.kernel != ComputeKernel::kFusedUvmCaching) return 0;
  return CacheSlots(table.rows, table.cache_load_factor);
}

// State of so many values a row is in host memory.
bool IsOfWeights(std::int64_t of_row) { return of_row > 1; }

}  // namespace

std::int64_t HostTable::DeviceBytes(const EmbeddingTableSpec& table) {
  const std::int64_t slots = SlotsOf(table);
  return slots == 0 ? 0 : std::min(kFar, BlockOf(slots, table.cols) + RowCache::BytesFor(slots));
}

std::int64_t HostTable::HostBytes(const EmbeddingTableSpec& table,
                                  const OptimizerStateShape& state) {
  std::int64_t bytes = BlockOf(table.rows, table.cols);
  for (const std::int64_t of_row : {state.momentum1, state.momentum2}) {
    if (IsOfWeights(of_row)) bytes = std::min(kFar, bytes + BlockOf(table.rows, of_row));
  }
  return bytes;
}

StatusOr<std::unique_ptr<HostTable>> HostTable::Create(const EmbeddingTableSpec& table,
                                                       const OptimizerStateShape& state) {
  NS_ASSIGN_OR_RETURN(auto memory,
                      HostRows::Create(SlotsOf(table) * table.cols * 4, HostBytes(table, state)));
  return std::unique_ptr<HostTable>(new HostTable(table, std::move(memory), state));
}

HostTable::HostTable(const EmbeddingTableSpec& table, std::unique_ptr<HostRows> memory,
                     const OptimizerStateShape& state)
    : num_rows_(table.rows), cols_(table.cols), memory_(std::move(memory)) {
  if (const std::int64_t slots = SlotsOf(table); slots > 0) cache_.emplace(slots);
  rows_ = reinterpret_cast<float*>(memory_->near());
  std::byte* next = memory_->far();
  const auto take = [&next, this](std::int64_t of_row) -> std::span<float> {
    auto* const floats = reinterpret_cast<float*>(next);
    next += BlockOf(num_rows_, of_row);
    return {floats, static_cast<std::size_t>(num_rows_ * of_row)};
  };
  weights_ = take(cols_);
  if (IsOfWeights(state.momentum1)) momentum1_ = take(state.momentum1);
  if (IsOfWeights(state.momentum2)) momentum2_ = take(state.momentum2);
}

void HostTable::NewInputs(std::size_t num_ids) {
  places_.resize(num_ids);
  fetched_ = false;
}

void HostTable::Fetch(std::span<const std::int64_t> ids, std::span<std::uint64_t> scratch,
                      std::span<std::uint64_t> spare) {
  fetched_ = true;
  const std::int64_t cols = cols_;
  const auto replace = [this, cols](std::int64_t slot, std::int64_t evicted, std::int64_t row) {
    float* const of_slot = rows_ + slot * cols;
    if (evicted != RowCache::kNoRow) std::copy_n(of_slot, cols, &weights_[evicted * cols]);
    std::copy_n(&weights_[row * cols], cols, of_slot);
  };
  cache_->Use(ids, places_, scratch, spare,
              static_cast<int>(std::bit_width(static_cast<std::uint64_t>(num_rows_ - 1))), replace);
}

void HostTable::CopyWeightsTo(std::span<float> weights) const {
  std::copy(weights_.begin(), weights_.end(), weights.begin());
  for (std::int64_t slot = 0; slot < num_slots(); ++slot) {
    const std::int64_t row = slot_rows()[slot];
    if (row != RowCache::kNoRow) std::copy_n(rows_ + slot * cols_, cols_, &weights[row * cols_]);
  }
}

void HostTable::SetWeights(std::span<const float> weights) {
  std::copy(weights.begin(), weights.end(), weights_.begin());
  for (std::int64_t slot = 0; slot < num_slots(); ++slot) {
    const std::int64_t row = slot_rows()[slot];
    if (row != RowCache::kNoRow) std::copy_n(&weights[row * cols_], cols_, rows_ + slot * cols_);
  }
}

}  // namespace neuroshard
