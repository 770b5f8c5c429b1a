#include "kernels/tcp/tcp_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <string_view>

#include "common/base/bytes.h"
#include "common/base/mutex.h"
#include "common/base/stop_signal.h"
#include "kernels/tcp/rank_sockets.h"
#include "kernels/tcp/ring_schedule.h"
#include "kernels/tcp/tcp_mesh.h"

namespace neuroshard {
namespace {

using Direction = Transfer::Direction;
using Parts = std::vector<std::span<std::byte>>;

void AddFloats(std::byte* sums, const std::byte* numbers, std::size_t bytes) {
  float* __restrict const to = reinterpret_cast<float*>(sums);
  const float* __restrict const from = reinterpret_cast<const float*>(numbers);
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) to[i] += from[i];
}

// A connected rank of a group. Calls come from one thread, Abort from any. An exchange that fails
// breaks the group for good.
class TcpCommunicator final : public Communicator {
 public:
  // `network` is what Network says.
  TcpCommunicator(const CommunicatorSpec& spec, std::map<std::string, std::string> network,
                  std::shared_ptr<TcpMesh> mesh)
      : spec_(spec), network_(std::move(network)), mesh_(std::move(mesh)) {}

  int rank() const override { return spec_.rank; }
  int world_size() const override { return spec_.world_size; }

  // INVALID_ARGUMENT leaves the group whole.
  Status Reserve(const Exchange& exchange) override {
    NS_RETURN_IF_ERROR(broken_);
    NS_ASSIGN_OR_RETURN(const BufferBytes bytes, BuffersOf(exchange));
    return ReserveBytes(bytes);
  }

  Status Run(const Exchange& exchange) override {
    NS_RETURN_IF_ERROR(broken_);
    NS_ASSIGN_OR_RETURN(const BufferBytes bytes, BuffersOf(exchange));
    NS_RETURN_IF_ERROR(CheckReserved(bytes));
    return exchange.collective == Collective::kAllToAll
               ? RunAllToAll(exchange)
               : RunRing(exchange.collective, static_cast<std::size_t>(exchange.block_bytes));
  }

  std::map<std::string, std::string> Network() const override { return network_; }
  Status Barrier() override { return RunMax("barrier", 0).status(); }
  StatusOr<double> Max(double value) override { return RunMax("max", value); }
  void Abort() override { mesh_->Abort(); }

  std::span<std::byte> SendBuffer() override { return Part(RingBuffer::kInput); }
  std::span<const std::byte> ReceiveBuffer() const override { return buffers_[1]; }

 private:
  using BufferBytes = std::array<std::int64_t, 3>;  // by RingBuffer

  StatusOr<BufferBytes> BuffersOf(const Exchange& exchange) const {
    NS_ASSIGN_OR_RETURN(const ExchangeBytes bytes, BytesOf(exchange, rank(), world_size()));
    return BufferBytes{bytes.send, bytes.receive,
                       exchange.block_bytes * ScratchBlocks(exchange.collective, world_size())};
  }

  Status ReserveBytes(const BufferBytes& bytes) {
    if (CheckReserved(bytes).ok()) return absl::OkStatus();
    // All old buffers go first, so that what they hold is available again.
    buffers_ = {};
    std::int64_t available = AvailableMemoryBytes();
    try {
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] > available) throw std::bad_alloc();
        available -= bytes[i];
        buffers_[i].resize(bytes[i]);
      }
    } catch (const std::exception&) {  // bad_alloc or length_error
      buffers_ = {};
      return ResourceExhausted(
          "buffers for sending {}, receiving {} and sums of {} do not fit the {} of memory that "
          "are available",
          FormatBytes(bytes[0]), FormatBytes(bytes[1]), FormatBytes(bytes[2]),
          FormatBytes(AvailableMemoryBytes()));
    }
    return absl::OkStatus();
  }

  Status CheckReserved(const BufferBytes& bytes) const {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] <= static_cast<std::int64_t>(buffers_[i].size())) continue;
      return InvalidArgument("sends {} and receives {}, but {} and {} were reserved",
                             FormatBytes(bytes[0]), FormatBytes(bytes[1]),
                             FormatBytes(static_cast<std::int64_t>(buffers_[0].size())),
                             FormatBytes(static_cast<std::int64_t>(buffers_[1].size())));
    }
    return absl::OkStatus();
  }

  // A part of a buffer; without a size, the rest of it.
  std::span<std::byte> Part(RingBuffer buffer, std::size_t begin = 0,
                            std::size_t bytes = std::dynamic_extent) {
    return std::span(buffers_[static_cast<std::size_t>(buffer)]).subspan(begin, bytes);
  }

  Status RunAllToAll(const Exchange& exchange) {
    const std::vector<std::int64_t> send_offsets = PartOffsets(exchange.send_bytes);
    const std::vector<std::int64_t> receive_offsets = PartOffsets(exchange.receive_bytes);
    const auto sent = [&](int to) {
      return Part(RingBuffer::kInput, send_offsets[to], exchange.send_bytes[to]);
    };
    const auto received = [&](int from) {
      return Part(RingBuffer::kOutput, receive_offsets[from], exchange.receive_bytes[from]);
    };
    std::vector<Transfer> transfers;
    // Every rank begins with another peer, so that no rank is flooded. Nobody sends empty parts.
    for (int step = 1; step < world_size(); ++step) {
      const int to = (rank() + step) % world_size();
      const int from = (rank() + world_size() - step) % world_size();
      if (!sent(to).empty()) transfers.emplace_back(Direction::kSend, to, Parts{sent(to)});
      if (!received(from).empty()) {
        transfers.emplace_back(Direction::kReceive, from, Parts{received(from)});
      }
    }
    return MoveAll("all-to-all", transfers, Deadline(), {.meanwhile = [&] {
                     std::ranges::copy(sent(rank()), received(rank()).begin());
                   }});
  }

  // What is received goes on to the right neighbour, with the input added where it is a partial
  // sum, as soon as it is there.
  Status RunRing(Collective collective, std::size_t block_bytes) {
    const int size = world_size();
    ExchangeWork work;
    if (size == 1 || collective == Collective::kAllGather) {
      work.meanwhile = [&] {
        std::ranges::copy(Part(RingBuffer::kInput, 0, block_bytes),
                          Part(RingBuffer::kOutput, rank() * block_bytes).begin());
      };
    }
    if (size == 1) return MoveAll(ToText(collective), {}, Deadline(), std::move(work));
    const RingSchedule schedule = MakeRingSchedule(collective, rank(), size);
    const auto place = [&](RingBlock block) {
      return Part(block.buffer, block.block * block_bytes, block_bytes);
    };
    Parts sent = {place(schedule.first)}, received;
    for (const RingStep& step : schedule.steps) received.push_back(place(step.receive));
    sent.insert(sent.end(), received.begin(), received.end() - 1);
    Transfer transfers[] = {{Direction::kSend, (rank() + 1) % size, std::move(sent)},
                            {Direction::kReceive, (rank() + size - 1) % size, std::move(received)}};
    transfers[0].SendFirst(block_bytes);
    std::size_t finished = 0;
    work.received = [&](const Transfer& transfer) {
      std::size_t whole = transfer.moved_bytes();
      if (collective != Collective::kAllGather) whole -= whole % sizeof(float);
      while (finished < whole) {
        const RingStep& step = schedule.steps[finished / block_bytes];
        const std::size_t begin = finished % block_bytes;
        const std::size_t bytes = std::min(block_bytes - begin, whole - finished);
        if (step.add_input) {
          AddFloats(place(step.receive).data() + begin,
                    place({RingBuffer::kInput, *step.add_input}).data() + begin, bytes);
        }
        finished += bytes;
      }
      transfers[0].SendFirst(std::min(block_bytes + finished, transfers[0].bytes()));
    };
    return MoveAll(ToText(collective), transfers, Deadline(), std::move(work));
  }

  // In each round a rank knows the largest value of twice as many ranks to its left as before.
  StatusOr<double> RunMax(std::string_view what, double value) {
    NS_RETURN_IF_ERROR(broken_);
    const TcpMesh::TimePoint deadline = Deadline();
    for (int distance = 1; distance < world_size(); distance *= 2) {
      double other = value;
      const auto bytes_of = [](double& number) {
        return Parts{std::as_writable_bytes(std::span(&number, 1))};
      };
      const int right = (rank() + distance) % world_size();
      const int left = (rank() + world_size() - distance) % world_size();
      Transfer transfers[] = {{Direction::kSend, right, bytes_of(value)},
                              {Direction::kReceive, left, bytes_of(other)}};
      NS_RETURN_IF_ERROR(MoveAll(what, transfers, deadline));
      value = std::max(value, other);
    }
    return value;
  }

  // The next exchange, as TcpMesh::Run. A failure says what it was, and breaks the group.
  Status MoveAll(std::string_view what, std::span<Transfer> transfers, TcpMesh::TimePoint deadline,
                 ExchangeWork work = {}) {
    const Status status = mesh_->Run(transfers, deadline, std::move(work));
    if (!status.ok()) {
      broken_ = Annotate(status,
                         fmt::format("{} of rank {} in a group of {}", what, rank(), world_size()));
    }
    return broken_;
  }

  TcpMesh::TimePoint Deadline() const { return std::chrono::steady_clock::now() + spec_.timeout; }

  const CommunicatorSpec spec_;
  const std::map<std::string, std::string> network_;
  const std::shared_ptr<TcpMesh> mesh_;
  std::array<std::vector<std::byte>, 3> buffers_;  // by RingBuffer
  Status broken_;                                  // OK while the group is whole
};

class PendingTcpCommunicator final : public PendingCommunicator {
 public:
  PendingTcpCommunicator(const CommunicatorSpec& spec, std::map<std::string, std::string> network,
                         std::unique_ptr<RankSockets> sockets)
      : spec_(spec), network_(std::move(network)), sockets_(std::move(sockets)) {}

  const std::string& address() const override { return sockets_->address(); }

  Status CheckAddress(const std::string& address) const override {
    return sockets_->CheckAddress(address);
  }

  StatusOr<std::unique_ptr<Communicator>> Connect(std::vector<std::string> addresses) override {
    if (connect_was_called_) return FailedPrecondition("Connect was called before");
    const auto deadline = std::chrono::steady_clock::now() + spec_.timeout;
    auto connected = sockets_->Connect(addresses, deadline, stop_);
    if (absl::IsInvalidArgument(connected.status())) {
      return Annotate(connected.status(), "addresses");
    }
    connect_was_called_ = true;
    if (!connected.ok()) {
      return Annotate(connected.status(), fmt::format("connecting rank {} in a group of {}",
                                                      spec_.rank, spec_.world_size));
    }
    const auto mesh = std::make_shared<TcpMesh>(*std::move(connected));
    {
      const MutexLock lock(mutex_);
      mesh_ = mesh;
      if (stop_.ShouldStop()) mesh->Abort();
    }
    auto communicator = std::make_unique<TcpCommunicator>(spec_, network_, mesh);
    // The peers may still be missing each other.
    NS_RETURN_IF_ERROR(communicator->Barrier());
    return communicator;
  }

  void Abort() override {
    stop_.Stop();
    const MutexLock lock(mutex_);
    if (mesh_ != nullptr) mesh_->Abort();
  }

 private:
  const CommunicatorSpec spec_;
  const std::map<std::string, std::string> network_;
  const std::unique_ptr<RankSockets> sockets_;
  bool connect_was_called_ = false;
  ManualStop stop_;
  Mutex mutex_;
  std::shared_ptr<TcpMesh> mesh_ NS_GUARDED_BY(mutex_);  // once connected
};

}  // namespace

std::map<std::string, std::string> TcpBackend::details() const { return {{"tcp_bind", where()}}; }

StatusOr<std::unique_ptr<PendingCommunicator>> TcpBackend::Open(
    const CommunicatorSpec& spec) const {
  NS_RETURN_IF_ERROR(CheckSpec(spec));
  const auto local = FindLocalAddress(options_.host, options_.interface);
  if (!local.ok()) return Unavailable("cannot listen on {}: {}", where(), Message(local.status()));
  auto sockets = RankSockets::Open(
      spec.rank, spec.world_size, *local,
      options_.networks.empty() ? std::vector{local->network} : options_.networks);
  if (!sockets.ok()) {
    return Unavailable("cannot listen on {}: {}", where(), Message(sockets.status()));
  }
  return std::make_unique<PendingTcpCommunicator>(spec, NetworkProperties(*local),
                                                  *std::move(sockets));
}

}  // namespace neuroshard
