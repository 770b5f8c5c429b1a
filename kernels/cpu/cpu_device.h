// One core of the host as an embedding device: lookups by SIMD kernels in real memory, collectives
// through an injected backend.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/device_backend.h"
#include "kernels/cpu/memory_arena.h"

namespace neuroshard {

// Works on the thread that calls it and starts none, so a device is one core; pin that thread with
// PinThisThread (kernels/machine) for steady measurements. One EmbeddingOp at a time: all of them
// use the device's one arena, whose pages are touched once and then reused, so that no measurement
// pays for page faults. Pages are returned when device and op are gone.
class CpuDevice final : public DeviceBackend {
 public:
  // `memory_bytes`: upper limit of what tables, optimizer state, activations and ids may take.
  // INVALID_ARGUMENT unless it is positive; UNAVAILABLE when the address space cannot be reserved.
  static StatusOr<std::unique_ptr<CpuDevice>> Create(
      std::int64_t memory_bytes, std::shared_ptr<const CollectiveBackend> collectives);

  const DeviceProperties& properties() const override { return properties_; }

  // Besides RESOURCE_EXHAUSTED: INVALID_ARGUMENT for a spec out of range, FAILED_PRECONDITION while
  // another op of this device lives. The weights of a new op are a function of spec.seed: uniform
  // in [-0.05, 0.05), optimizer state zero.
  StatusOr<std::unique_ptr<EmbeddingOp>> CreateEmbeddingOp(const EmbeddingOpSpec& spec) override;

  // Reads a buffer of twice the last-level cache (at most 128 MiB), so that nothing else is left in
  // it.
  void FlushCache() override;

  double TimeMs(const std::function<void()>& work) override;

  StatusOr<std::unique_ptr<PendingCommunicator>> OpenCommunicator(
      const CommunicatorSpec& spec) override;

 private:
  CpuDevice(std::shared_ptr<MemoryArena> arena,
            std::shared_ptr<const CollectiveBackend> collectives);

  std::shared_ptr<MemoryArena> arena_;
  std::shared_ptr<const CollectiveBackend> collectives_;
  DeviceProperties properties_;
  std::vector<std::uint64_t> flush_buffer_;
};

}  // namespace neuroshard
