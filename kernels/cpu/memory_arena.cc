#include "kernels/cpu/memory_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/bytes.h"
#include "kernels/machine/machine.h"

namespace neuroshard {

StatusOr<std::unique_ptr<MemoryArena>> MemoryArena::Create(std::int64_t capacity_bytes) {
  if (capacity_bytes < 1) {
    return InvalidArgument("memory_bytes: must be at least 1, got {}", capacity_bytes);
  }
  void* base = mmap(nullptr, static_cast<std::size_t>(capacity_bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Unavailable("cannot reserve {} of address space: {}", FormatBytes(capacity_bytes),
                       std::strerror(errno));
  }
  // Random rows would miss the TLB nearly every time with 4 KiB pages. A kernel that has no huge
  // pages still works.
  madvise(base, static_cast<std::size_t>(capacity_bytes), MADV_HUGEPAGE);
  return std::unique_ptr<MemoryArena>(
      new MemoryArena(static_cast<std::byte*>(base), capacity_bytes));
}

MemoryArena::~MemoryArena() { munmap(base_, static_cast<std::size_t>(capacity_bytes_)); }

std::int64_t MemoryArena::NewPagesBytes(std::int64_t bytes) const {
  const std::int64_t resident = std::max(touched_bytes_ - used_bytes_, std::int64_t{0});
  return std::max(bytes - resident, std::int64_t{0});
}

Status MemoryArena::CheckFits(std::int64_t bytes, std::int64_t beside_bytes) const {
  // A machine that gave more than it has would have the kernel kill the process when the pages are
  // touched.
  const std::int64_t reused = bytes - NewPagesBytes(bytes);
  const std::int64_t available =
      std::min(capacity_bytes_ - used_bytes_, AvailableMemoryBytes() + reused);
  const std::int64_t needed = bytes + beside_bytes;
  if (needed <= available) return absl::OkStatus();
  return ResourceExhausted("needs {} ({} bytes), but only {} ({} bytes) are available",
                           FormatBytes(needed), needed, FormatBytes(available), available);
}

std::byte* MemoryArena::Take(std::int64_t bytes) {
  std::byte* block = base_ + used_bytes_;
  used_bytes_ += BlockBytes(bytes);
  touched_bytes_ = std::max(touched_bytes_, used_bytes_);
  return block;
}

}  // namespace neuroshard
