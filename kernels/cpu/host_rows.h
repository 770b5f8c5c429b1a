// Memory of a table whose rows are in "host memory": a tier behind the device's own that costs more
// to reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"

namespace neuroshard {

// Two ranges of addresses, one after the other: `near_bytes` of the device's memory and, from the
// next page on, `far_bytes` of an unlinked temporary file (memfd). The file is in memory and never
// on a disk; what makes it the colder tier is that it is mapped in pages of 4 KiB, and that Forget
// takes them out of the page table: the next access to each is a fault that the kernel answers, as
// for managed memory of a GPU (a read maps the 15 pages around it too). Not thread-safe.
class HostRows {
 public:
  // The near range ends where the far one begins, at an address that is a multiple of the page.
  // Readable past both ends as MemoryArena's blocks are. UNAVAILABLE when the system refuses. The
  // caller has checked that they fit the memory.
  static StatusOr<std::unique_ptr<HostRows>> Create(std::int64_t near_bytes,
                                                    std::int64_t far_bytes);
  ~HostRows();
  HostRows(const HostRows&) = delete;
  HostRows& operator=(const HostRows&) = delete;

  std::byte* far() const { return far_; }
  std::byte* near() const { return far_ - near_bytes_; }

  // Takes the far pages out of the page table; their content stays.
  void Forget();

 private:
  HostRows(std::byte* base, std::size_t mapped_bytes, std::byte* far, std::int64_t near_bytes)
      : base_(base), mapped_bytes_(mapped_bytes), far_(far), near_bytes_(near_bytes) {}

  std::byte* base_;
  std::size_t mapped_bytes_;
  std::byte* far_;
  std::int64_t near_bytes_;
};

}  // namespace neuroshard
