#include "kernels/cpu/host_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/bytes.h"
#include "kernels/cpu/memory_arena.h"

namespace neuroshard {
namespace {

std::size_t WholePages(std::int64_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (static_cast<std::size_t>(bytes) + page - 1) / page * page;
}

Status Refused(std::int64_t bytes) {
  return Unavailable("cannot map {} of host memory: {}", FormatBytes(bytes), std::strerror(errno));
}

// The mapping keeps the file.
bool MapFile(std::byte* at, std::size_t bytes) {
  const int file = memfd_create("neuroshard-host-rows", MFD_CLOEXEC);
  if (file < 0) return false;
  const bool mapped =
      ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
      mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == at;
  const int error = errno;
  close(file);
  errno = error;
  return mapped;
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
  return slots == 0
             ? 0
             : std::min(MemoryArena::kBeyondAny, MemoryArena::FloatBlockBytes(slots, table.cols) +
                                                     RowCache::BytesFor(slots));
}

std::int64_t HostTable::HostBytes(const EmbeddingTableSpec& table,
                                  const OptimizerStateShape& state) {
  std::int64_t bytes = MemoryArena::FloatBlockBytes(table.rows, table.cols);
  for (const std::int64_t of_row : {state.momentum1, state.momentum2}) {
    if (!IsOfWeights(of_row)) continue;
    bytes =
        std::min(MemoryArena::kBeyondAny, bytes + MemoryArena::FloatBlockBytes(table.rows, of_row));
  }
  return bytes;
}

StatusOr<std::unique_ptr<HostTable>> HostTable::Create(const EmbeddingTableSpec& table,
                                                       const OptimizerStateShape& state) {
  const std::int64_t near_bytes = SlotsOf(table) * table.cols * 4;
  const std::int64_t far_bytes = HostBytes(table, state);
  const std::size_t near = WholePages(near_bytes);
  const std::size_t far = WholePages(far_bytes + MemoryArena::kAlignmentBytes);
  void* base = mmap(nullptr, near + far, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return Refused(near_bytes + far_bytes);
  Mapping memory(static_cast<std::byte*>(base), {near + far});
  if (near > 0) madvise(base, near, MADV_HUGEPAGE);  // as the arena
  if (!MapFile(memory.get() + near, far)) return Refused(far_bytes);
  return std::unique_ptr<HostTable>(new HostTable(table, state, std::move(memory), near));
}

HostTable::HostTable(const EmbeddingTableSpec& table, const OptimizerStateShape& state,
                     Mapping memory, std::size_t near_bytes)
    : num_rows_(table.rows),
      cols_(table.cols),
      memory_(std::move(memory)),
      far_(memory_.get() + near_bytes, memory_.get_deleter().bytes - near_bytes),
      weights_(reinterpret_cast<float*>(far_.data()),
               static_cast<std::size_t>(table.rows * table.cols)) {
  if (const std::int64_t slots = SlotsOf(table); slots > 0) cache_.emplace(slots);
  rows_ = weights_.data() - num_slots() * cols_;
  std::byte* next = far_.data() + MemoryArena::FloatBlockBytes(num_rows_, cols_);
  const auto take = [&next, this](std::int64_t of_row) -> std::span<float> {
    auto* const floats = reinterpret_cast<float*>(next);
    next += MemoryArena::FloatBlockBytes(num_rows_, of_row);
    return {floats, static_cast<std::size_t>(num_rows_ * of_row)};
  };
  if (IsOfWeights(state.momentum1)) momentum1_ = take(state.momentum1);
  if (IsOfWeights(state.momentum2)) momentum2_ = take(state.momentum2);
}

void HostTable::Unmap::operator()(std::byte* memory) const { munmap(memory, bytes); }

void HostTable::Forget() { madvise(far_.data(), far_.size(), MADV_DONTNEED); }

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

}  // namespace neuroshard
