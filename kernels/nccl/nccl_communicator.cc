#include "kernels/nccl/nccl_communicator.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/bytes.h"

namespace neuroshard {
namespace {

using SteadyTime = std::chrono::steady_clock;

std::int64_t AtLeastOne(std::int64_t bytes) { return std::max<std::int64_t>(bytes, 1); }

}  // namespace

Status NcclRank::Connect(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return Finish(
      "connecting",
      [&] {
        return library_->CommInitRankConfig(&handle_, spec_.world_size, id, spec_.rank, &config);
      },
      [] { return true; });
}

Status NcclRank::Finish(std::string_view what, const std::function<ncclResult_t()>& call,
                        const std::function<StatusOr<bool>()>& done) {
  NS_RETURN_IF_ERROR(broken_);
  const auto deadline = SteadyTime::now() + spec_.timeout;
  std::string reason;
  ncclResult_t result = aborted_ ? ncclInProgress : call();
  bool under_way = false;
  while (reason.empty()) {
    if (aborted_) {
      reason = "aborted";
    } else if (result != ncclSuccess && result != ncclInProgress) {
      reason =
          fmt::format("{}: {}", library_->GetErrorString(result), library_->GetLastError(nullptr));
    } else if (SteadyTime::now() > deadline) {
      reason = fmt::format("no answer from the other ranks within {} ms", spec_.timeout.count());
    } else if (!under_way && handle_ != nullptr &&
               library_->CommGetAsyncError(handle_, &result) == ncclSuccess &&
               result == ncclSuccess) {
      under_way = true;
    } else if (under_way) {
      const StatusOr<bool> finished = done();
      if (!finished.ok()) {
        reason = Message(finished.status());
      } else if (*finished) {
        return absl::OkStatus();
      } else if (library_->CommGetAsyncError(handle_, &result) != ncclSuccess) {
        result = ncclInternalError;
      }
    }
    std::this_thread::yield();
  }
  broken_ = absl::AbortedError(fmt::format("{} of rank {} in a group of {}: {}", what, spec_.rank,
                                           spec_.world_size, reason));
  Close();
  return broken_;
}

// Not ncclCommDestroy: that waits for peers, which may be gone.
void NcclRank::Close() {
  if (handle_ != nullptr) (void)library_->CommAbort(std::exchange(handle_, nullptr));
}

StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(
    std::shared_ptr<NcclRank> rank, std::shared_ptr<cuda::CudaGpu> gpu) {
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(std::move(rank), std::move(gpu)));
  made->gpu_->Use();
  NS_RETURN_IF_ERROR(cuda::CudaStatus(cudaEventCreate(&made->begin_), "an event"));
  NS_RETURN_IF_ERROR(cuda::CudaStatus(cudaEventCreate(&made->end_), "an event"));
  NS_RETURN_IF_ERROR(made->scalar_.Reserve(2 * sizeof(double)));
  return made;
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclRank> rank,
                                   std::shared_ptr<cuda::CudaGpu> gpu)
    : rank_(std::move(rank)), gpu_(std::move(gpu)), send_(gpu_), receive_(gpu_), scalar_(gpu_) {}

NcclCommunicator::~NcclCommunicator() {
  rank_.reset();  // ends what may still run on the buffers
  gpu_->Use();
  if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
  if (end_ != nullptr) (void)cudaEventDestroy(end_);
}

Status NcclCommunicator::Reserve(const AllToAllCounts& counts) {
  NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes, BytesOfCounts(counts, rank(), world_size()));
  return ReserveBytes(bytes);
}

Status NcclCommunicator::ReserveBlocks(Collective collective, std::int64_t block_bytes) {
  NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes,
                      BytesOfBlocks(collective, block_bytes, world_size()));
  return ReserveBytes(bytes);
}

Status NcclCommunicator::ReserveBytes(const ExchangeBytes& bytes) {
  if (CheckReserved(bytes).ok()) return absl::OkStatus();
  NS_RETURN_IF_ERROR(Annotate(send_.Reserve(AtLeastOne(bytes.send)), "buffer for sending"));
  NS_RETURN_IF_ERROR(Annotate(receive_.Reserve(AtLeastOne(bytes.receive)), "buffer for receiving"));
  gpu_->Note(cudaMemsetAsync(send_.at(0), 0, send_.bytes(), gpu_->stream()), "touching buffers");
  gpu_->Note(cudaMemsetAsync(receive_.at(0), 0, receive_.bytes(), gpu_->stream()),
             "touching buffers");
  gpu_->Note(cudaStreamSynchronize(gpu_->stream()), "touching buffers");
  return gpu_->status();
}

Status NcclCommunicator::CheckReserved(const ExchangeBytes& bytes) const {
  if (AtLeastOne(bytes.send) <= send_.bytes() && AtLeastOne(bytes.receive) <= receive_.bytes()) {
    return absl::OkStatus();
  }
  return InvalidArgument("sends {} and receives {}, but {} and {} were reserved",
                         FormatBytes(bytes.send), FormatBytes(bytes.receive),
                         FormatBytes(send_.bytes()), FormatBytes(receive_.bytes()));
}

Status NcclCommunicator::AllToAll(const AllToAllCounts& counts) {
  NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes, BytesOfCounts(counts, rank(), world_size()));
  NS_RETURN_IF_ERROR(CheckReserved(bytes));
  const std::vector<std::int64_t> from = PartOffsets(counts.send_bytes);
  const std::vector<std::int64_t> to = PartOffsets(counts.receive_bytes);
  const NcclLibrary& nccl = rank_->library();
  return Run("all-to-all", [&] {
    const int self = rank();
    if (counts.send_bytes[self] > 0) {
      gpu_->Note(cudaMemcpyAsync(receive_.at(to[self]), send_.at(from[self]),
                                 counts.send_bytes[self], cudaMemcpyDeviceToDevice, gpu_->stream()),
                 "copying to itself");
    }
    ncclResult_t result = nccl.GroupStart();
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer == self) continue;
      if (result == ncclSuccess && counts.send_bytes[peer] > 0) {
        result = nccl.Send(send_.at(from[peer]), counts.send_bytes[peer], ncclInt8, peer,
                           rank_->handle(), gpu_->stream());
      }
      if (result == ncclSuccess && counts.receive_bytes[peer] > 0) {
        result = nccl.Recv(receive_.at(to[peer]), counts.receive_bytes[peer], ncclInt8, peer,
                           rank_->handle(), gpu_->stream());
      }
    }
    const ncclResult_t ended = nccl.GroupEnd();
    return result == ncclSuccess ? ended : result;
  });
}

Status NcclCommunicator::RunBlocks(Collective collective, std::int64_t block_bytes) {
  NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes,
                      BytesOfBlocks(collective, block_bytes, world_size()));
  NS_RETURN_IF_ERROR(CheckReserved(bytes));
  const NcclLibrary& nccl = rank_->library();
  const auto floats = static_cast<std::size_t>(block_bytes) / sizeof(float);
  return Run(ToText(collective), [&] {
    switch (collective) {
      case Collective::kReduceScatter:
        return nccl.ReduceScatter(send_.at(0), receive_.at(0), floats, ncclFloat32, ncclSum,
                                  rank_->handle(), gpu_->stream());
      case Collective::kAllGather:
        return nccl.AllGather(send_.at(0), receive_.at(0), block_bytes, ncclInt8, rank_->handle(),
                              gpu_->stream());
      case Collective::kAllReduce:
        return nccl.AllReduce(send_.at(0), receive_.at(0), floats * world_size(), ncclFloat32,
                              ncclSum, rank_->handle(), gpu_->stream());
      case Collective::kAllToAll:
        break;
    }
    return ncclInvalidArgument;
  });
}

StatusOr<double> NcclCommunicator::Max(double value) {
  auto* scalars = reinterpret_cast<double*>(scalar_.at(0));
  NS_RETURN_IF_ERROR(gpu_->CopyIn(scalars, &value, sizeof value));
  const std::optional<double> kept = last_exchange_ms_;
  NS_RETURN_IF_ERROR(Run("max", [&] {
    return rank_->library().AllReduce(scalars, scalars + 1, 1, ncclFloat64, ncclMax,
                                      rank_->handle(), gpu_->stream());
  }));
  last_exchange_ms_ = kept;
  NS_RETURN_IF_ERROR(gpu_->CopyOut(&value, scalars + 1, sizeof value));
  return value;
}

Status NcclCommunicator::Run(std::string_view what, const std::function<ncclResult_t()>& call) {
  gpu_->Use();
  NS_RETURN_IF_ERROR(gpu_->status());
  last_exchange_ms_.reset();
  bool recorded = false;
  const auto enqueue = [&] {
    gpu_->Note(cudaEventRecord(begin_, gpu_->stream()), "timing");
    return call();
  };
  const auto done = [&]() -> StatusOr<bool> {
    // Only now has NCCL put its kernel into the stream.
    if (!std::exchange(recorded, true)) {
      gpu_->Note(cudaEventRecord(end_, gpu_->stream()), "timing");
    }
    const cudaError_t state = cudaEventQuery(end_);
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();  // which would give it to the next launch
      return false;
    }
    gpu_->Note(state, what);
    NS_RETURN_IF_ERROR(gpu_->status());
    return true;
  };
  NS_RETURN_IF_ERROR(rank_->Finish(what, enqueue, done));
  float milliseconds = 0;
  gpu_->Note(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing");
  NS_RETURN_IF_ERROR(gpu_->status());
  last_exchange_ms_ = static_cast<double>(milliseconds);
  return absl::OkStatus();
}

}  // namespace neuroshard
