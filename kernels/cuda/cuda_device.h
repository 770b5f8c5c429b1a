// One GPU as an embedding device: lookups by CUDA kernels, collectives through an injected backend.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "kernels/api/device_backend.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/device_gate.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/nvml.h"

namespace neuroshard {

// One GPU as a device of the worker. All calls come from the thread that made it.
class CudaDevice final : public DeviceBackend {
 public:
  // UNAVAILABLE when the device cannot be used.
  static StatusOr<std::unique_ptr<CudaDevice>> Create(
      int device, std::shared_ptr<const CollectiveBackend> collectives);
  ~CudaDevice() override;

  const DeviceProperties& properties() const override { return properties_; }

  // Besides RESOURCE_EXHAUSTED: INVALID_ARGUMENT for a spec out of range (GpuEmbeddingOp). Fails
  // with Health() after an error that cannot be undone.
  StatusOr<std::unique_ptr<EmbeddingOp>> CreateEmbeddingOp(const EmbeddingOpSpec& spec) override;

  // Reads a buffer of twice the L2 cache, at least 128 MiB: what was in the cache is written back
  // and gone, and what takes its place need not be written when the timed work pushes it out.
  void FlushCache() override;

  // The time between two events around what `work` enqueues. A kernel before them keeps the device
  // busy until all of it is enqueued (at most 20 ms), so that no gap of the host's making is timed.
  // NaN after an error.
  double TimeMs(const std::function<void()>& work) override;

  StatusOr<std::unique_ptr<PendingCommunicator>> OpenCommunicator(
      const CommunicatorSpec& spec) override;

  // Also sees errors of other streams of the device, such as those of collectives.
  Status Health() const override;
  std::map<std::string, std::string> Conditions() const override;

  const std::shared_ptr<cuda::CudaGpu>& gpu() const { return gpu_; }

 private:
  CudaDevice(std::shared_ptr<cuda::CudaGpu> gpu,
             std::shared_ptr<const CollectiveBackend> collectives);
  Status Prepare();

  std::shared_ptr<cuda::CudaGpu> gpu_;
  std::shared_ptr<const CollectiveBackend> collectives_;
  std::unique_ptr<cuda::Nvml> nvml_;  // may be null
  DeviceProperties properties_;
  cuda::GpuBuffer flush_buffer_;
  cuda::DeviceGate gate_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace neuroshard
