#include "kernels/gloo/gloo_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <stdexcept>

#include "common/base/bytes.h"
#include "gloo/allreduce.h"
#include "gloo/barrier.h"
#include "gloo/math.h"
#include "gloo/types.h"
#include "kernels/api/collective.h"
#include "kernels/gloo/ring_schedule.h"
#include "kernels/gloo/thread_guards.h"
#include "kernels/machine/machine.h"

namespace neuroshard {
namespace {

// Turns one timeout into what is left of it at each wait.
class ExchangeDeadline {
 public:
  explicit ExchangeDeadline(std::chrono::milliseconds timeout) : end_(Clock::now() + timeout) {}

  // Gloo takes a negative timeout for "use the default", so never less than 1 ms.
  std::chrono::milliseconds Remaining() const {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end_;
};

// What tells messages between the same ranks apart.
enum class MessageKind : std::uint32_t { kData = 0, kNeverSent = 1, kRing = 2 };
std::uint64_t SlotOf(MessageKind message) {
  return ::gloo::Slot::build(::gloo::kAlltoallSlotPrefix, static_cast<std::uint32_t>(message));
}

void AddFloats(float* __restrict sums, const float* __restrict numbers, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += numbers[i];
}

}  // namespace

Status GlooCommunicator::Reserve(const AllToAllCounts& counts) {
  NS_RETURN_IF_ERROR(broken_);
  NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes, BytesOfCounts(counts, rank(), world_size()));
  return ReserveBytes({bytes.send, bytes.receive, 0});
}

Status GlooCommunicator::ReserveBlocks(Collective collective, std::int64_t block_bytes) {
  NS_RETURN_IF_ERROR(broken_);
  NS_ASSIGN_OR_RETURN(const BufferBytes bytes, BuffersOfBlocks(collective, block_bytes));
  return ReserveBytes(bytes);
}

StatusOr<GlooCommunicator::BufferBytes> GlooCommunicator::BuffersOfBlocks(
    Collective collective, std::int64_t block_bytes) const {
  NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes,
                      BytesOfBlocks(collective, block_bytes, world_size()));
  return BufferBytes{bytes.send, bytes.receive,
                     block_bytes * ScratchBlocks(collective, world_size())};
}

Status GlooCommunicator::ReserveBytes(const BufferBytes& bytes) {
  if (CheckReserved(bytes).ok()) return absl::OkStatus();
  // All old buffers go first, so what they hold is available again.
  send_buffer_.reset();
  receive_buffer_.reset();
  scratch_buffer_.reset();
  send_bytes_ = {};
  receive_bytes_ = {};
  scratch_bytes_ = {};
  std::int64_t available = AvailableMemoryBytes();
  for (const std::int64_t part : {bytes.send, bytes.receive, bytes.scratch}) {
    if (part > available) {
      return ResourceExhausted(
          "buffers for sending {}, receiving {} and sums of {} do not fit the {} of memory that "
          "are available",
          FormatBytes(bytes.send), FormatBytes(bytes.receive), FormatBytes(bytes.scratch),
          FormatBytes(AvailableMemoryBytes()));
    }
    available -= part;
  }
  try {
    send_bytes_.resize(bytes.send);
    receive_bytes_.resize(bytes.receive);
    scratch_bytes_.resize(bytes.scratch);
  } catch (const std::exception&) {  // bad_alloc or length_error
    send_bytes_ = {};
    receive_bytes_ = {};
    scratch_bytes_ = {};
    return ResourceExhausted("cannot allocate buffers for sending {} and receiving {}",
                             FormatBytes(bytes.send), FormatBytes(bytes.receive));
  }
  return Guard("reserve", [this] {
    send_buffer_ = Register(send_bytes_);
    receive_buffer_ = Register(receive_bytes_);
    scratch_buffer_ = Register(scratch_bytes_);
  });
}

Status GlooCommunicator::CheckReserved(const BufferBytes& bytes) const {
  const auto size = [](const std::vector<std::byte>& buffer) {
    return static_cast<std::int64_t>(buffer.size());
  };
  const bool fits = bytes.send <= size(send_bytes_) && bytes.receive <= size(receive_bytes_) &&
                    bytes.scratch <= size(scratch_bytes_);
  if (fits) return absl::OkStatus();
  return InvalidArgument("sends {} and receives {}, but {} and {} were reserved",
                         FormatBytes(bytes.send), FormatBytes(bytes.receive),
                         FormatBytes(size(send_bytes_)), FormatBytes(size(receive_bytes_)));
}

// When a connection breaks, Gloo notifies the buffers of all messages that wait for their turn on
// it, but not the buffer whose message is half received: a wait for that would last until its
// timeout. So every buffer also posts a receive, in a slot of its own, for which no peer ever sends
// anything; its failure ends the wait.
std::unique_ptr<::gloo::transport::UnboundBuffer> GlooCommunicator::Register(
    std::span<std::byte> bytes) {
  auto buffer = mesh_->createUnboundBuffer(bytes.data(), bytes.size());
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer != rank()) buffer->recv(peer, SlotOf(MessageKind::kNeverSent), 0, 0);
  }
  return buffer;
}

Status GlooCommunicator::AllToAll(const AllToAllCounts& counts) {
  NS_RETURN_IF_ERROR(broken_);
  NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes, BytesOfCounts(counts, rank(), world_size()));
  NS_RETURN_IF_ERROR(CheckReserved({bytes.send, bytes.receive, 0}));
  return Guard("all-to-all", [&] { Exchange(counts); });
}

// As gloo::alltoallv does it (every rank starts with another peer, so that no rank is flooded), but
// on buffers that are registered once, with one deadline for the whole exchange, and without
// messages to peers that get nothing.
void GlooCommunicator::Exchange(const AllToAllCounts& counts) {
  const ExchangeDeadline deadline(mesh_->getTimeout());
  const std::vector<std::int64_t> send_offsets = PartOffsets(counts.send_bytes);
  const std::vector<std::int64_t> receive_offsets = PartOffsets(counts.receive_bytes);
  const std::uint64_t slot = SlotOf(MessageKind::kData);
  const int self = rank(), size = world_size();
  int sends = 0, receives = 0;
  for (int step = 1; step < size; ++step) {
    const int to = (self + step) % size, from = (self + size - step) % size;
    if (counts.receive_bytes[from] > 0) {
      receive_buffer_->recv(from, slot, receive_offsets[from], counts.receive_bytes[from]);
      ++receives;
    }
    if (counts.send_bytes[to] > 0) {
      send_buffer_->send(to, slot, send_offsets[to], counts.send_bytes[to]);
      ++sends;
    }
  }
  if (counts.send_bytes[self] > 0) {
    std::memcpy(receive_bytes_.data() + receive_offsets[self],
                send_bytes_.data() + send_offsets[self], counts.send_bytes[self]);
  }
  for (; sends > 0; --sends) send_buffer_->waitSend(nullptr, deadline.Remaining());
  for (; receives > 0; --receives) receive_buffer_->waitRecv(nullptr, deadline.Remaining());
}

Status GlooCommunicator::RunBlocks(Collective collective, std::int64_t block_bytes) {
  NS_RETURN_IF_ERROR(broken_);
  NS_ASSIGN_OR_RETURN(const BufferBytes bytes, BuffersOfBlocks(collective, block_bytes));
  NS_RETURN_IF_ERROR(CheckReserved(bytes));
  return Guard(ToText(collective), [&] { RunRing(collective, block_bytes); });
}

void GlooCommunicator::RunRing(Collective collective, std::int64_t block_bytes) {
  const int self = rank(), size = world_size();
  if (size == 1 || collective == Collective::kAllGather) {
    std::copy_n(send_bytes_.begin(), block_bytes, receive_bytes_.begin() + self * block_bytes);
  }
  if (size == 1) return;
  const RingSchedule schedule =
      MakeRingSchedule(collective, self, size, static_cast<std::size_t>(block_bytes));
  const std::vector<RingTransfer>& transfers = schedule.transfers;
  const auto buffer_of = [&](RingPart part) -> ::gloo::transport::UnboundBuffer& {
    if (part.buffer == RingBuffer::kScratch) return *scratch_buffer_;
    return part.buffer == RingBuffer::kInput ? *send_buffer_ : *receive_buffer_;
  };
  const std::uint64_t slot = SlotOf(MessageKind::kRing);
  const auto send = [&](const RingTransfer& transfer) {
    buffer_of(transfer.send)
        .send((self + 1) % size, slot, transfer.send.offset_bytes, transfer.bytes);
  };
  const ExchangeDeadline deadline(mesh_->getTimeout());
  // All at once: messages between two ranks stay in order, so each arrives when its place is free.
  for (const RingTransfer& transfer : transfers) {
    buffer_of(transfer.receive)
        .recv((self + size - 1) % size, slot, transfer.receive.offset_bytes, transfer.bytes);
  }
  for (std::size_t i = 0; i < std::min(schedule.lead, transfers.size()); ++i) send(transfers[i]);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const RingTransfer& transfer = transfers[i];
    buffer_of(transfer.receive).waitRecv(nullptr, deadline.Remaining());
    if (transfer.add_input) {
      auto& sums =
          transfer.receive.buffer == RingBuffer::kScratch ? scratch_bytes_ : receive_bytes_;
      AddFloats(reinterpret_cast<float*>(sums.data() + transfer.receive.offset_bytes),
                reinterpret_cast<const float*>(send_bytes_.data() + transfer.input_offset_bytes),
                transfer.bytes / sizeof(float));
    }
    if (i + schedule.lead < transfers.size()) send(transfers[i + schedule.lead]);
  }
  for (const RingTransfer& transfer : transfers) {
    buffer_of(transfer.send).waitSend(nullptr, deadline.Remaining());
  }
}

Status GlooCommunicator::Barrier() {
  NS_RETURN_IF_ERROR(broken_);
  if (world_size() == 1) return absl::OkStatus();
  return Guard("barrier", [this] {
    ::gloo::BarrierOptions options(mesh_);
    ::gloo::barrier(options);
  });
}

StatusOr<double> GlooCommunicator::Max(double value) {
  NS_RETURN_IF_ERROR(broken_);
  if (world_size() == 1) return value;
  NS_RETURN_IF_ERROR(Guard("max", [&] {
    ::gloo::AllreduceOptions options(mesh_);
    options.setOutput(&value, 1);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&::gloo::max<double>));
    ::gloo::allreduce(options);
  }));
  return value;
}

void GlooCommunicator::Abort() {
  aborted_ = true;
  mesh_->Abort();
}

Status GlooCommunicator::Guard(std::string_view what, const std::function<void()>& exchange) {
  const SigpipeGuard guard;
  try {
    if (!aborted_) exchange();
    if (!aborted_) return absl::OkStatus();
    throw std::runtime_error("aborted");
  } catch (const std::exception& error) {
    broken_ = absl::AbortedError(fmt::format("{} of rank {} in a group of {}: {}", what, rank(),
                                             world_size(), error.what()));
  }
  try {
    mesh_->closeConnections();  // so that the peers do not have to wait for their timeouts
  } catch (const std::exception&) {
    // They are closed by the destructor then.
  }
  return broken_;
}

}  // namespace neuroshard
