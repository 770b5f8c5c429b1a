#include "kernels/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "common/base/bytes.h"

namespace neuroshard {
namespace {

// The longest time that enqueueing an exchange takes, beyond its start offset; a gate that outlasts
// it would keep the other ranks.
constexpr std::chrono::milliseconds kLongestEnqueueing{200};

// The time from the last rank's coming to the start that all agree on: longer than an answer takes
// to all ranks, and enqueueing the exchange behind its gate.
constexpr std::chrono::milliseconds kTimeToEnqueue{1};

std::int64_t AtLeastOne(std::int64_t bytes) { return std::max<std::int64_t>(bytes, 1); }

}  // namespace

StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(
    std::shared_ptr<NcclRank> rank, std::shared_ptr<cuda::CudaGpu> gpu) {
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(std::move(rank), std::move(gpu)));
  made->gpu_->Use();
  NS_RETURN_IF_ERROR(cuda::CudaStatus(cudaEventCreate(&made->begin_), "an event"));
  NS_RETURN_IF_ERROR(cuda::CudaStatus(cudaEventCreate(&made->end_), "an event"));
  NS_RETURN_IF_ERROR(made->gate_.Prepare());
  NS_RETURN_IF_ERROR(made->scalar_.Reserve(2 * sizeof(double)));
  return made;
}

Status NcclCommunicator::Connect(const ncclUniqueId& id, std::string_view clock) {
  gpu_->Use();
  NS_RETURN_IF_ERROR(rank_->Connect(id));
  NS_RETURN_IF_ERROR(Barrier());  // also sets up NCCL's channels
  // A number that a double holds; of a clock without a name, one that no other rank has.
  const double name = clock.empty()
                          ? -1.0 - rank()
                          : static_cast<double>(std::hash<std::string_view>()(clock) >> 12);
  NS_ASSIGN_OR_RETURN(const double largest, Max(name));
  NS_ASSIGN_OR_RETURN(const double smallest_negated, Max(-name));
  one_clock_ = largest == -smallest_negated;
  return absl::OkStatus();
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclRank> rank,
                                   std::shared_ptr<cuda::CudaGpu> gpu)
    : rank_(std::move(rank)),
      gpu_(std::move(gpu)),
      send_(gpu_),
      receive_(gpu_),
      scalar_(gpu_),
      gate_(gpu_) {}

NcclCommunicator::~NcclCommunicator() {
  rank_.reset();  // ends what may still run on the buffers
  gpu_->Use();
  if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
  if (end_ != nullptr) (void)cudaEventDestroy(end_);
}

bool NcclCommunicator::Begun() const {
  gpu_->Use();
  const bool begun = cudaEventQuery(begin_) == cudaSuccess;
  (void)cudaGetLastError();
  return begun;
}

Status NcclCommunicator::Reserve(const Exchange& exchange) {
  NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes, BytesOf(exchange, rank(), world_size()));
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

Status NcclCommunicator::Run(const Exchange& exchange) {
  const Hold hold = std::exchange(hold_, {});
  NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes, BytesOf(exchange, rank(), world_size()));
  NS_RETURN_IF_ERROR(CheckReserved(bytes));
  // Computed here and not in Start, so that the exchange's time does not include it.
  const PartsAt at{PartOffsets(exchange.send_bytes), PartOffsets(exchange.receive_bytes)};
  const bool all_to_all = exchange.collective == Collective::kAllToAll;
  const std::string_view what = all_to_all ? "all-to-all" : ToText(exchange.collective);
  // NCCL may do another exchange in another way.
  const bool known = std::exchange(last_, exchange) == exchange;
  if (hold.wait && !known) hold.wait();
  const Status ran = Finish(
      what, [&] { return Start(exchange, at); }, known ? hold : Hold{});
  if (!ran.ok()) last_.reset();
  return ran;
}

ncclResult_t NcclCommunicator::Start(const Exchange& exchange, const PartsAt& at) {
  const NcclLibrary& nccl = rank_->library();
  const std::int64_t block_bytes = exchange.block_bytes;
  const auto floats = static_cast<std::size_t>(block_bytes) / sizeof(float);
  switch (exchange.collective) {
    case Collective::kAllToAll:
      break;
    case Collective::kReduceScatter:
      return nccl.ReduceScatter(send_.at(0), receive_.at(0), floats, ncclFloat32, ncclSum,
                                rank_->handle(), gpu_->stream());
    case Collective::kAllGather:
      return nccl.AllGather(send_.at(0), receive_.at(0), block_bytes, ncclInt8, rank_->handle(),
                            gpu_->stream());
    case Collective::kAllReduce:
      return nccl.AllReduce(send_.at(0), receive_.at(0), floats * world_size(), ncclFloat32,
                            ncclSum, rank_->handle(), gpu_->stream());
  }
  // To itself as well, within the group as torch.distributed does: beside the other parts.
  ncclResult_t result = nccl.GroupStart();
  for (int peer = 0; peer < world_size(); ++peer) {
    if (result == ncclSuccess && exchange.send_bytes[peer] > 0) {
      result = nccl.Send(send_.at(at.send[peer]), exchange.send_bytes[peer], ncclInt8, peer,
                         rank_->handle(), gpu_->stream());
    }
    if (result == ncclSuccess && exchange.receive_bytes[peer] > 0) {
      result = nccl.Recv(receive_.at(at.receive[peer]), exchange.receive_bytes[peer], ncclInt8,
                         peer, rank_->handle(), gpu_->stream());
    }
  }
  const ncclResult_t ended = nccl.GroupEnd();
  return result == ncclSuccess ? ended : result;
}

StatusOr<TimePoint> NcclCommunicator::Meet(const Clock& clock) {
  if (!one_clock_) return Communicator::Meet(clock);
  const std::chrono::nanoseconds mine = (clock.Now() + kTimeToEnqueue).time_since_epoch();
  NS_ASSIGN_OR_RETURN(const double last, Max(static_cast<double>(mine.count())));
  return TimePoint(std::chrono::nanoseconds(static_cast<std::int64_t>(last)));
}

StatusOr<double> NcclCommunicator::Max(double value) {
  auto* scalars = scalar_.at<double>(0);
  NS_RETURN_IF_ERROR(gpu_->CopyIn(scalars, &value, sizeof value));
  const std::optional<double> kept = last_exchange_ms_;
  const auto call = [&] {
    return rank_->library().AllReduce(scalars, scalars + 1, 1, ncclFloat64, ncclMax,
                                      rank_->handle(), gpu_->stream());
  };
  NS_RETURN_IF_ERROR(Finish("max", call, Hold()));
  last_exchange_ms_ = kept;
  NS_RETURN_IF_ERROR(gpu_->CopyOut(&value, scalars + 1, sizeof value));
  return value;
}

Status NcclCommunicator::Finish(std::string_view what, const std::function<ncclResult_t()>& call,
                                const Hold& hold) {
  gpu_->Use();
  NS_RETURN_IF_ERROR(gpu_->status());
  last_exchange_ms_.reset();
  bool recorded = false;
  const auto enqueue = [&] {
    if (hold.wait) gate_.Close(hold.takes + kLongestEnqueueing);
    gpu_->Note(cudaEventRecord(begin_, gpu_->stream()), "timing");
    return call();
  };
  const auto done = [&]() -> StatusOr<bool> {
    // Only now has NCCL put its kernel into the stream.
    if (!std::exchange(recorded, true)) {
      gpu_->Note(cudaEventRecord(end_, gpu_->stream()), "timing");
      if (hold.wait) hold.wait();
      if (!gate_.Open() && hold.wait) {
        return Unavailable("the host took longer than {} ms to enqueue it, so it began too early",
                           kLongestEnqueueing.count());
      }
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
  NS_RETURN_IF_ERROR(rank_->Finish(what, enqueue, done, [this] { gate_.Open(); }));
  float milliseconds = 0;
  gpu_->Note(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing");
  NS_RETURN_IF_ERROR(gpu_->status());
  last_exchange_ms_ = static_cast<double>(milliseconds);
  return absl::OkStatus();
}

}  // namespace neuroshard
