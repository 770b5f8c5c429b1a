#include "kernels/tcp/tcp_mesh.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "common/base/violations.h"

namespace neuroshard {
namespace {

// The most bytes of a turn, after which the other direction and the other peers have theirs.
constexpr std::size_t kTurnBytes = std::size_t{1} << 20;

}  // namespace

Transfer::Transfer(Direction direction, int peer, std::vector<std::span<std::byte>> parts)
    : direction_(direction),
      peer_(peer),
      header_(std::make_unique<Header>()),
      parts_(std::move(parts)) {
  for (const std::span<std::byte> part : parts_) expected_.bytes += part.size();
  parts_.insert(parts_.begin(), std::as_writable_bytes(std::span(header_.get(), 1)));
  limit_ = sizeof(Header) + bytes();
}

void Transfer::Begin(std::uint64_t exchange) {
  expected_.exchange = exchange;
  if (sends()) *header_ = expected_;
}

StatusOr<std::size_t> Transfer::Move(int fd) {
  std::array<iovec, 8> pieces;
  std::size_t count = 0, asked = 0;
  const std::size_t most = std::min(kTurnBytes, limit_ - moved_);
  for (std::size_t i = part_; i < parts_.size() && count < pieces.size() && asked < most; ++i) {
    pieces[count] = {parts_[i].data(), std::min(parts_[i].size(), most - asked)};
    asked += pieces[count++].iov_len;
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  ssize_t moved;
  do {
    moved = sends() ? sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                    : recvmsg(fd, &message, MSG_DONTWAIT);
  } while (moved < 0 && errno == EINTR);
  if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    socket_ready_ = false;
    return std::size_t{0};
  }
  if (moved <= 0) return Fault(moved == 0 ? "it closed the connection" : std::strerror(errno));

  auto rest = static_cast<std::size_t>(moved);
  socket_ready_ = rest == asked;
  moved_ += rest;
  for (; part_ < parts_.size() && rest >= parts_[part_].size(); ++part_) {
    rest -= parts_[part_].size();
  }
  if (rest > 0) parts_[part_] = parts_[part_].subspan(rest);
  if (part_ > 0 && *header_ != expected_) {
    return Fault(fmt::format("it sends {} bytes in exchange {} of the group, instead of {} in {}",
                             header_->bytes, header_->exchange, bytes(), expected_.exchange));
  }
  return static_cast<std::size_t>(moved);
}

pollfd Transfer::Wait(int fd) const {
  const int events = !sends() ? POLLIN : moved_ < limit_ ? POLLOUT | POLLRDHUP : POLLRDHUP;
  return {Done() ? -1 : fd, static_cast<short>(events), 0};  // poll leaves -1 out
}

Status Transfer::Ready(int events) {
  if (events != 0) socket_ready_ = true;
  // A peer that closes its side before it has received everything has given up.
  const bool given_up = sends() && events != 0 && (events & POLLOUT) == 0;
  return given_up ? Fault("it closed the connection") : absl::OkStatus();
}

std::string Transfer::Progress() const {
  return fmt::format("{} {} of {} bytes", sends() ? "sent" : "received", moved_bytes(), bytes());
}

Status Transfer::Fault(const std::string& what) const {
  return Aborted("rank {}: {}: {}", peer_, Progress(), what);
}

Status TcpMesh::Run(std::span<Transfer> transfers, TimePoint deadline, ExchangeWork work) {
  ++exchanges_;
  for (Transfer& transfer : transfers) transfer.Begin(exchanges_);
  Status status = MoveAll(transfers, deadline, work);
  if (aborted_) status = absl::AbortedError("aborted");
  // So that the peers do not have to wait for their timeouts.
  if (!status.ok()) Abort();
  return status;
}

Status TcpMesh::MoveAll(std::span<Transfer> transfers, TimePoint deadline, ExchangeWork& work) {
  while (true) {
    NS_ASSIGN_OR_RETURN(const bool moved, TakeTurns(transfers, work));
    if (moved) continue;
    if (work.meanwhile) std::exchange(work.meanwhile, nullptr)();
    if (std::ranges::all_of(transfers, &Transfer::Done)) return absl::OkStatus();
    NS_RETURN_IF_ERROR(Wait(transfers, deadline));
  }
}

StatusOr<bool> TcpMesh::TakeTurns(std::span<Transfer> transfers, const ExchangeWork& work) {
  bool any_moved = false;
  for (Transfer& transfer : transfers) {
    if (!transfer.CanMove()) continue;
    NS_ASSIGN_OR_RETURN(const std::size_t moved, transfer.Move(sockets_[transfer.peer()].get()));
    any_moved |= moved > 0;
    if (moved > 0 && work.received && !transfer.sends()) work.received(transfer);
  }
  return any_moved;
}

Status TcpMesh::Wait(std::span<Transfer> transfers, TimePoint deadline) const {
  std::vector<pollfd> waits;
  for (const Transfer& transfer : transfers) {
    waits.push_back(transfer.Wait(sockets_[transfer.peer()].get()));
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() > 0) {
    poll(waits.data(), waits.size(),
         static_cast<int>(std::min<std::int64_t>(left.count(), INT_MAX)));
    for (std::size_t i = 0; i < waits.size(); ++i) {
      NS_RETURN_IF_ERROR(transfers[i].Ready(waits[i].revents));
    }
    return absl::OkStatus();
  }
  Violations missing;
  for (const Transfer& transfer : transfers) {
    if (!transfer.Done()) missing.Add(fmt::format("rank {}", transfer.peer()), transfer.Progress());
  }
  return absl::AbortedError("timed out: " + Message(missing.ToStatus()));
}

void TcpMesh::Abort() noexcept {
  aborted_ = true;
  for (const FileDescriptor& socket : sockets_) {
    if (socket.open()) shutdown(socket.get(), SHUT_RDWR);
  }
}

}  // namespace neuroshard
