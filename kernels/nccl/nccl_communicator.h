// A connected group of NCCL ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/api/collective.h"
#include "kernels/api/exchange_bytes.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/gpu_buffer.h"
#include "kernels/nccl/nccl_library.h"

namespace neuroshard {

// One rank's communicator of NCCL, which does not block: calls of NCCL return at once, and what
// they started is waited for here, no longer than the timeout and no longer than nobody aborts.
// Aborting ends NCCL's kernels; the device stays usable.
class NcclRank {
 public:
  NcclRank(std::shared_ptr<const NcclLibrary> library, const CommunicatorSpec& spec)
      : library_(std::move(library)), spec_(spec) {}
  ~NcclRank() { Close(); }
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  const NcclLibrary& library() const { return *library_; }
  const CommunicatorSpec& spec() const { return spec_; }
  ncclComm_t handle() const { return handle_; }

  Status Connect(const ncclUniqueId& id);
  // `call`, then until NCCL has it under way and, with an event, until the device reached that.
  // ABORTED, and closed, when anything fails.
  Status Finish(std::string_view what, const std::function<ncclResult_t()>& call,
                const std::function<StatusOr<bool>()>& done);
  void Abort() { aborted_ = true; }  // from any thread

 private:
  void Close();

  const std::shared_ptr<const NcclLibrary> library_;
  const CommunicatorSpec spec_;
  ncclComm_t handle_ = nullptr;
  Status broken_;
  std::atomic<bool> aborted_{false};
};

class NcclCommunicator final : public Communicator {
 public:
  static StatusOr<std::unique_ptr<NcclCommunicator>> Create(std::shared_ptr<NcclRank> rank,
                                                            std::shared_ptr<cuda::CudaGpu> gpu);
  ~NcclCommunicator() override;

  int rank() const override { return rank_->spec().rank; }
  int world_size() const override { return rank_->spec().world_size; }

  Status Reserve(const AllToAllCounts& counts) override;
  Status AllToAll(const AllToAllCounts& counts) override;
  Status ReserveBlocks(Collective collective, std::int64_t block_bytes) override;
  Status RunBlocks(Collective collective, std::int64_t block_bytes) override;
  Status Barrier() override { return Max(0).status(); }
  StatusOr<double> Max(double value) override;
  void Abort() override { rank_->Abort(); }

  // Between two events on the device: from when the exchange was enqueued to when this rank had
  // sent and received everything.
  std::optional<double> LastExchangeMs() const override { return last_exchange_ms_; }

  // The device's memory, for tests.
  std::byte* device_send_buffer() const { return send_.at(0); }
  std::byte* device_receive_buffer() const { return receive_.at(0); }
  cuda::CudaGpu& gpu() const { return *gpu_; }

 private:
  NcclCommunicator(std::shared_ptr<NcclRank> rank, std::shared_ptr<cuda::CudaGpu> gpu);
  Status ReserveBytes(const ExchangeBytes& bytes);
  Status CheckReserved(const ExchangeBytes& bytes) const;
  Status Run(std::string_view what, const std::function<ncclResult_t()>& call);

  std::shared_ptr<NcclRank> rank_;
  std::shared_ptr<cuda::CudaGpu> gpu_;
  cuda::GpuBuffer send_, receive_, scalar_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::optional<double> last_exchange_ms_;
};

}  // namespace neuroshard
