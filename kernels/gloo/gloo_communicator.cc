#include "kernels/gloo/gloo_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "common/base/bytes.h"
#include "gloo/allreduce.h"
#include "gloo/barrier.h"
#include "gloo/math.h"
#include "gloo/types.h"
#include "kernels/gloo/sigpipe_guard.h"
#include "kernels/machine/machine.h"

namespace neuroshard {
namespace {

// What tells messages between the same ranks apart.
enum class Message : std::uint32_t { kData = 0, kNeverSent = 1 };
std::uint64_t SlotOf(Message message) {
  return ::gloo::Slot::build(::gloo::kAlltoallSlotPrefix, static_cast<std::uint32_t>(message));
}

std::int64_t Total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::vector<std::int64_t> Offsets(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::int64_t{0});
  return offsets;
}

}  // namespace

Status GlooCommunicator::CheckCounts(const AllToAllCounts& counts) const {
  for (const auto* side : {&counts.send_bytes, &counts.receive_bytes}) {
    const char* name = side == &counts.send_bytes ? "send_bytes" : "receive_bytes";
    if (side->size() != static_cast<std::size_t>(world_size())) {
      return InvalidArgument("{}: must have one entry a rank ({}), got {}", name, world_size(),
                             side->size());
    }
    std::int64_t left = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t bytes : *side) {
      if (bytes < 0 || bytes > left) {
        return InvalidArgument("{}: {} is negative or makes the sum overflow", name, bytes);
      }
      left -= bytes;
    }
  }
  if (counts.send_bytes[rank()] != counts.receive_bytes[rank()]) {
    return InvalidArgument("rank {} sends {} bytes to itself but receives {}", rank(),
                           counts.send_bytes[rank()], counts.receive_bytes[rank()]);
  }
  return absl::OkStatus();
}

Status GlooCommunicator::Reserve(const AllToAllCounts& counts) {
  NS_RETURN_IF_ERROR(broken_);
  NS_RETURN_IF_ERROR(CheckCounts(counts));
  const std::int64_t send = Total(counts.send_bytes), receive = Total(counts.receive_bytes);
  // Both old buffers go first, so what they hold is available again.
  const bool send_fits = send <= static_cast<std::int64_t>(send_bytes_.size());
  const bool receive_fits = receive <= static_cast<std::int64_t>(receive_bytes_.size());
  if (send_fits && receive_fits) return absl::OkStatus();
  send_buffer_.reset();
  receive_buffer_.reset();
  send_bytes_ = {};
  receive_bytes_ = {};
  const std::int64_t available = AvailableMemoryBytes();
  if (send > available || receive > available - send) {
    return ResourceExhausted(
        "buffers for sending {} and receiving {} do not fit the {} of memory that are available",
        FormatBytes(send), FormatBytes(receive), FormatBytes(available));
  }
  try {
    send_bytes_.resize(send);
    receive_bytes_.resize(receive);
  } catch (const std::exception&) {  // bad_alloc or length_error
    send_bytes_ = {};
    receive_bytes_ = {};
    return ResourceExhausted("cannot allocate buffers for sending {} and receiving {}",
                             FormatBytes(send), FormatBytes(receive));
  }
  return Guard("reserve", [this] {
    send_buffer_ = Register(send_bytes_);
    receive_buffer_ = Register(receive_bytes_);
  });
}

// When a connection breaks, Gloo tells the buffers of all messages that wait for their turn on it,
// but not the buffer whose message is half through: a wait for that would last until its timeout.
// So every buffer also waits for a message that nobody sends.
std::unique_ptr<::gloo::transport::UnboundBuffer> GlooCommunicator::Register(
    std::span<std::byte> bytes) {
  auto buffer = mesh_->createUnboundBuffer(bytes.data(), bytes.size());
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer != rank()) buffer->recv(peer, SlotOf(Message::kNeverSent), 0, 0);
  }
  return buffer;
}

Status GlooCommunicator::AllToAll(const AllToAllCounts& counts) {
  NS_RETURN_IF_ERROR(broken_);
  NS_RETURN_IF_ERROR(CheckCounts(counts));
  if (Total(counts.send_bytes) > static_cast<std::int64_t>(send_bytes_.size()) ||
      Total(counts.receive_bytes) > static_cast<std::int64_t>(receive_bytes_.size())) {
    return InvalidArgument("sends {} and receives {}, but {} and {} were reserved",
                           FormatBytes(Total(counts.send_bytes)),
                           FormatBytes(Total(counts.receive_bytes)),
                           FormatBytes(static_cast<std::int64_t>(send_bytes_.size())),
                           FormatBytes(static_cast<std::int64_t>(receive_bytes_.size())));
  }
  return Guard("all-to-all", [&] { Exchange(counts); });
}

// As gloo::alltoallv does it (every rank starts with another peer, so that no rank is flooded), but
// on buffers that are registered once, with one deadline for the whole exchange, and without
// messages to peers that get nothing.
void GlooCommunicator::Exchange(const AllToAllCounts& counts) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + mesh_->getTimeout();
  const auto remaining = [&deadline] {
    // Gloo takes a negative timeout for "use the default".
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()));
  };
  const std::vector<std::int64_t> send_offsets = Offsets(counts.send_bytes);
  const std::vector<std::int64_t> receive_offsets = Offsets(counts.receive_bytes);
  const std::uint64_t slot = SlotOf(Message::kData);
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
  for (; sends > 0; --sends) send_buffer_->waitSend(nullptr, remaining());
  for (; receives > 0; --receives) receive_buffer_->waitRecv(nullptr, remaining());
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
