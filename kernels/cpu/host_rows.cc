#include "kernels/cpu/host_rows.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace

StatusOr<std::unique_ptr<HostRows>> HostRows::Create(std::int64_t near_bytes,
                                                     std::int64_t far_bytes) {
  const std::size_t near = WholePages(near_bytes);
  const std::size_t far = WholePages(far_bytes + MemoryArena::kAlignmentBytes);
  void* base = mmap(nullptr, near + far, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return Refused(near_bytes + far_bytes);
  auto* const begin = static_cast<std::byte*>(base);
  if (near > 0) madvise(base, near, MADV_HUGEPAGE);  // as the arena
  if (!MapFile(begin + near, far)) {
    const Status refused = Refused(far_bytes);
    munmap(base, near + far);
    return refused;
  }
  return std::unique_ptr<HostRows>(new HostRows(begin, near + far, begin + near, near_bytes));
}

HostRows::~HostRows() { munmap(base_, mapped_bytes_); }

void HostRows::Forget() {
  madvise(far_, mapped_bytes_ - static_cast<std::size_t>(far_ - base_), MADV_DONTNEED);
}

}  // namespace neuroshard
