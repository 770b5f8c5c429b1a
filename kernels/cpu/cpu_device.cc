#include "kernels/cpu/cpu_device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/domain/backend_names.h"
#include "kernels/cpu/cpu_embedding_op.h"
#include "kernels/cpu/embedding_kernels.h"
#include "kernels/machine/machine.h"

namespace neuroshard {

StatusOr<std::unique_ptr<CpuDevice>> CpuDevice::Create(
    std::int64_t memory_bytes, std::shared_ptr<const CollectiveBackend> collectives) {
  NS_ASSIGN_OR_RETURN(auto arena, MemoryArena::Create(memory_bytes));
  return std::unique_ptr<CpuDevice>(new CpuDevice(std::move(arena), std::move(collectives)));
}

CpuDevice::CpuDevice(std::shared_ptr<MemoryArena> arena,
                     std::shared_ptr<const CollectiveBackend> collectives)
    : arena_(std::move(arena)), collectives_(std::move(collectives)) {
  properties_.name = CpuModelName();
  properties_.backend = kNeuroshardCpu;
  properties_.collective_backend = collectives_->name();
  properties_.memory_bytes = arena_->capacity_bytes();
  properties_.details = collectives_->details();
  properties_.embedding = CpuEmbeddingOp::Abilities();
  properties_.details["instruction_set"] = KernelInstructionSet();
  properties_.details["highway"] = KernelLibrary();
  properties_.details["threads"] = "1";
  properties_.details["last_level_cache_bytes"] = std::to_string(LastLevelCacheBytes());
  properties_.details["transparent_hugepage"] = TransparentHugePages();
  const std::int64_t flush_bytes = std::min(2 * LastLevelCacheBytes(), 128 * kMiB);
  flush_buffer_.assign(flush_bytes / 8, 1);
}

StatusOr<std::unique_ptr<EmbeddingOp>> CpuDevice::CreateEmbeddingOp(const EmbeddingOpSpec& spec) {
  if (arena_.use_count() > 1) {
    return FailedPrecondition("another EmbeddingOp of this device is still alive");
  }
  return CpuEmbeddingOp::Create(arena_, spec);
}

void CpuDevice::FlushCache() {
  // Kept where the compiler cannot know that nobody reads it.
  flush_buffer_[0] =
      ReadEveryLine(flush_buffer_.data(), static_cast<std::int64_t>(flush_buffer_.size()));
}

double CpuDevice::TimeMs(const std::function<void()>& work) {
  const SteadyClock clock;
  const TimePoint begin = clock.Now();
  work();
  return MillisecondsBetween(begin, clock.Now());
}

StatusOr<std::unique_ptr<PendingCommunicator>> CpuDevice::OpenCommunicator(
    const CommunicatorSpec& spec) {
  return collectives_->Open(spec);
}

}  // namespace neuroshard
