// Memory of one device: reserved once as address space, backed by pages as they are first touched,
// and kept for reuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "common/base/status.h"

namespace neuroshard {

// One block of memory that is handed out from its beginning on. Not thread-safe.
class MemoryArena {
 public:
  static constexpr std::int64_t kAlignmentBytes =
      64;  // a cache line; also the padding after every block

  // Reserves address space only. INVALID_ARGUMENT unless capacity_bytes is positive; UNAVAILABLE
  // when the system refuses.
  static StatusOr<std::unique_ptr<MemoryArena>> Create(std::int64_t capacity_bytes);
  ~MemoryArena();
  MemoryArena(MemoryArena&&) = delete;

  std::int64_t capacity_bytes() const { return capacity_bytes_; }

  // What a block of `bytes` takes: padded, so that vectors may be loaded past its end.
  static std::int64_t BlockBytes(std::int64_t bytes) {
    return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes + kAlignmentBytes;
  }
  // Where sizes beyond any machine are clamped: sums of a few do not overflow.
  static constexpr std::int64_t kBeyondAny = std::numeric_limits<std::int64_t>::max() / 4;
  // What a block of a x b floats takes, at most kBeyondAny.
  static std::int64_t FloatBlockBytes(std::int64_t a, std::int64_t b) {
    std::int64_t floats;
    if (__builtin_mul_overflow(a, b, &floats) || floats > kBeyondAny / 8) return kBeyondAny;
    return BlockBytes(floats * 4);
  }

  // All blocks are free again; the content of the pages stays, and stays resident.
  void Reset() { used_bytes_ = 0; }

  // Bytes of all blocks. ResetTo frees those that were taken since it had that value.
  std::int64_t used_bytes() const { return used_bytes_; }
  void ResetTo(std::int64_t used_bytes) { used_bytes_ = used_bytes; }

  // RESOURCE_EXHAUSTED, quoting both sizes, unless `bytes` more than in use now, and those that
  // count for the device but are allocated `beside` the arena, are within the capacity and within
  // what the machine can still give. Resident pages serve the arena's part alone. Nothing is
  // touched.
  Status CheckFits(std::int64_t bytes, std::int64_t beside_bytes = 0) const;

  // How much of `bytes` more than in use now has no resident page.
  std::int64_t NewPagesBytes(std::int64_t bytes) const;

  // The next block, aligned, its content arbitrary. The caller has checked that it fits.
  std::byte* Take(std::int64_t bytes);

 private:
  MemoryArena(std::byte* base, std::int64_t capacity_bytes)
      : base_(base), capacity_bytes_(capacity_bytes) {}

  std::byte* base_;
  std::int64_t capacity_bytes_;
  std::int64_t used_bytes_ = 0;
  std::int64_t touched_bytes_ = 0;  // high-water mark of used_bytes_
};

}  // namespace neuroshard
