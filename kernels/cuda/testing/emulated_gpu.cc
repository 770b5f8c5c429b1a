#include "kernels/cuda/testing/emulated_gpu.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/base/bytes.h"
#include "kernels/cuda/kernel_launches.h"
#include "kernels/cuda/testing/simt_emulator.h"

namespace neuroshard::cuda {
namespace {

constexpr std::size_t kAlignmentBytes = 256;

// Whatever the process was about to do, it ends here.
void SayWhere(int, siginfo_t* info, void*) {
  std::fprintf(stderr, "simt: %s: touches %p, which is no memory of the device\n", simt::Where(),
               info->si_addr);
  std::abort();
}

std::size_t RoundUp(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

EmulatedGpu::EmulatedGpu(std::int64_t memory_bytes, std::int64_t host_bytes)
    : SequentialGpu(memory_bytes, host_bytes),
      available_bytes_(memory_bytes),
      available_host_bytes_(host_bytes) {
  struct sigaction action {};
  action.sa_sigaction = SayWhere;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

EmulatedGpu::~EmulatedGpu() { signal(SIGSEGV, SIG_DFL); }

StatusOr<std::byte*> EmulatedGpu::Map(std::int64_t bytes, std::int64_t& available) {
  if (bytes > available) {
    return ResourceExhausted("{} do not fit the {} that are available", FormatBytes(bytes),
                             FormatBytes(available));
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t used = RoundUp(static_cast<std::size_t>(bytes), kAlignmentBytes);
  const std::size_t inner = RoundUp(used, page);
  void* begin = mmap(nullptr, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return ResourceExhausted("the host has no memory left");
  std::byte* first = static_cast<std::byte*>(begin) + page;
  if (mprotect(first, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(begin, inner + 2 * page);
    return ResourceExhausted("the host has no memory left");
  }
  std::memset(first, 0xff, inner);  // NaN: nothing can be used before it is written
  std::byte* memory = first + inner - used;
  mappings_.emplace(memory, Mapping{begin, inner + 2 * page, bytes});
  available -= bytes;
  return memory;
}

void EmulatedGpu::Unmap(std::byte* memory, std::int64_t& available) {
  const Mapping mapping = mappings_.at(memory);
  munmap(mapping.begin, mapping.size);
  mappings_.erase(memory);
  available += mapping.bytes;
}

StatusOr<std::byte*> EmulatedGpu::Allocate(std::int64_t bytes) {
  return Map(bytes, available_bytes_);
}

void EmulatedGpu::Free(std::byte* memory) { Unmap(memory, available_bytes_); }

StatusOr<std::byte*> EmulatedGpu::AllocateOnHost(std::int64_t bytes) {
  return Map(bytes, available_host_bytes_);
}

void EmulatedGpu::FreeOnHost(std::byte* memory) { Unmap(memory, available_host_bytes_); }

void EmulatedGpu::Launch(const GpuLaunch& launch) {
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.scratch_bytes; }) {
          SequentialGpu::Launch(launch);
        } else if (!one.empty()) {
          (void)Enqueue(one, nullptr);
        }
      },
      launch);
}

}  // namespace neuroshard::cuda
