// A connected group of NCCL ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "kernels/api/collective.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/cuda/device_gate.h"
#include "kernels/cuda/gpu.h"
#include "kernels/nccl/nccl_rank.h"

namespace neuroshard {

// A rank of a group over NCCL. Calls come from one thread, Abort from any.
//
// cudaMalloc, cudaHostAlloc and cudaFree may wait for all work of the device and of its peers,
// which are all devices of the process once NCCL runs. So where ranks share a process, all of them
// are created before the first connects, all end their Reserve before the first exchanges anything,
// and none is destroyed before the last exchange has ended; else they wait for each other until the
// timeout. A worker has a process a device.
class NcclCommunicator final : public Communicator {
 public:
  // Allocates what does not depend on the exchanges.
  static StatusOr<std::unique_ptr<NcclCommunicator>> Create(std::shared_ptr<NcclRank> rank,
                                                            std::shared_ptr<cuda::CudaGpu> gpu);
  // Connects the rank; called before the others, allocates nothing. `clock`: ranks with equal ones
  // read the same steady clock; empty: unknown.
  Status Connect(const ncclUniqueId& id, std::string_view clock);
  // Sets the answer of Network.
  void set_network(std::map<std::string, std::string> network) { network_ = std::move(network); }
  ~NcclCommunicator() override;

  int rank() const override { return rank_->spec().rank; }
  int world_size() const override { return rank_->spec().world_size; }

  Status Reserve(const Exchange& exchange) override;
  Status Run(const Exchange& exchange) override;
  std::map<std::string, std::string> Network() const override { return network_; }
  Status Barrier() override { return Max(0).status(); }
  // Ranks that share a clock agree on one moment: they leave a barrier tens of microseconds after
  // each other, which the exchange of the first would be charged for.
  StatusOr<TimePoint> Meet(const Clock& clock) override;
  StatusOr<double> Max(double value) override;
  void Abort() override { rank_->Abort(); }

  // A kernel in front of the exchange holds it back until `wait` has returned. Not in front of one
  // that differs from the one before: NCCL may connect ranks then, which can wait for the device.
  void StartNextWhen(std::chrono::nanoseconds takes, std::function<void()> wait) override {
    hold_ = {.takes = takes, .wait = std::move(wait)};
  }

  // The time between two events on the device: from when the exchange could begin to when this rank
  // had sent and received everything.
  std::optional<double> LastExchangeMs() const override { return last_exchange_ms_; }

  // The device's memory, for tests.
  std::byte* device_send_buffer() const { return send_.at(0); }
  std::byte* device_receive_buffer() const { return receive_.at(0); }
  cuda::CudaGpu& gpu() const { return *gpu_; }
  // Whether the device has come to where the last exchange's time begins, for tests.
  bool Begun() const;

 private:
  // What the next exchange begins after; nothing without `wait`.
  struct Hold {
    std::chrono::nanoseconds takes{0};
    std::function<void()> wait = nullptr;
  };
  // Where each peer's part is in the buffers; empty but for an all-to-all.
  struct PartsAt {
    std::vector<std::int64_t> send, receive;
  };

  NcclCommunicator(std::shared_ptr<NcclRank> rank, std::shared_ptr<cuda::CudaGpu> gpu);
  Status CheckReserved(const ExchangeBytes& bytes) const;
  // Has NCCL start it.
  ncclResult_t Start(const Exchange& exchange, const PartsAt& at);
  // Times `call` and waits for what it starts. hold.wait: called when all is enqueued, which does
  // not begin before it has returned.
  Status Finish(std::string_view what, const std::function<ncclResult_t()>& call, const Hold& hold);

  std::shared_ptr<NcclRank> rank_;
  std::shared_ptr<cuda::CudaGpu> gpu_;
  cuda::GpuBuffer send_, receive_, scalar_;
  cuda::DeviceGate gate_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  Hold hold_;
  bool one_clock_ = false;        // all ranks have it
  std::optional<Exchange> last_;  // none after a failure
  std::map<std::string, std::string> network_;
  std::optional<double> last_exchange_ms_;
};

}  // namespace neuroshard
