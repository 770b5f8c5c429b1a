// The connected sockets of one rank of a group, and the loop that moves bytes through them.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "kernels/tcp/rank_sockets.h"

namespace neuroshard {

// Bytes between a rank and one peer, in one direction, in one exchange: a header and then parts of
// buffers, one after the other, as far as the socket has moved them.
class Transfer {
 public:
  enum class Direction { kSend, kReceive };

  // The parts must outlive the exchange.
  Transfer(Direction direction, int peer, std::vector<std::span<std::byte>> parts);

  bool sends() const { return direction_ == Direction::kSend; }
  int peer() const { return peer_; }
  // Bytes of the parts, without the header.
  std::size_t bytes() const { return expected_.bytes; }
  std::size_t moved_bytes() const { return moved_ < sizeof(Header) ? 0 : moved_ - sizeof(Header); }

  // Lets a send go no further: no more than the first `bytes` are there to be sent. All, unless it
  // is called.
  void SendFirst(std::size_t bytes) { limit_ = sizeof(Header) + bytes; }

  // Before the first Move. `exchange`: its number in the group.
  void Begin(std::uint64_t exchange);
  bool Done() const { return moved_ == sizeof(Header) + bytes(); }
  // Whether there is something to move and the socket may be ready for it.
  bool CanMove() const { return socket_ready_ && moved_ < limit_; }
  // One turn: moves what the socket takes or gives at once, within limits; how many bytes. ABORTED:
  // the peer is gone, or in another exchange.
  StatusOr<std::size_t> Move(int fd);
  // What to wait for, and what has come of it. ABORTED: the peer has closed its side.
  pollfd Wait(int fd) const;
  Status Ready(int events);

  // "sent 16 of 4096 bytes"
  std::string Progress() const;

 private:
  // So that ranks notice when they are not in the same exchange, or expect different sizes. As it
  // lies in memory: ranks of different byte orders refuse each other.
  struct Header {
    std::uint64_t exchange = 0;
    std::uint64_t bytes = 0;
    bool operator==(const Header&) const = default;
  };

  Status Fault(const std::string& what) const;

  const Direction direction_;
  const int peer_;
  Header expected_;
  std::unique_ptr<Header> header_;  // as sent or received
  std::vector<std::span<std::byte>> parts_;
  std::size_t part_ = 0;   // the first of which something is left
  std::size_t moved_ = 0;  // with the header, as `limit_`
  std::size_t limit_;
  bool socket_ready_ = true;  // until tried
};

// What the calling thread does in an exchange beside moving bytes; none where empty.
struct ExchangeWork {
  // After each turn of a receiving transfer. May let a sending one send more (SendFirst).
  std::function<void(const Transfer&)> received = {};
  // Once, as soon as the sockets are not ready.
  std::function<void()> meanwhile = {};
};

// Starts no thread: who calls Run moves the bytes. Run is for one thread, Abort for any.
class TcpMesh {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `sockets` by rank, as RankSockets connects them.
  explicit TcpMesh(std::vector<FileDescriptor> sockets) : sockets_(std::move(sockets)) {}

  // The group's next exchange: moves all transfers, in both directions at once. Every rank has to
  // call it for every exchange, whether or not it has transfers there. ABORTED: a peer is gone, is
  // in another exchange, or the deadline has passed; all of these name the peers. Then, as after
  // Abort, every later call fails, and so do those of the peers.
  Status Run(std::span<Transfer> transfers, TimePoint deadline, ExchangeWork work = {});

  void Abort() noexcept;

 private:
  Status MoveAll(std::span<Transfer> transfers, TimePoint deadline, ExchangeWork& work);
  // One for each transfer that can move; whether any byte moved.
  StatusOr<bool> TakeTurns(std::span<Transfer> transfers, const ExchangeWork& work);
  // Until a socket is ready; at the deadline ABORTED.
  Status Wait(std::span<Transfer> transfers, TimePoint deadline) const;

  // Shut down by Abort, but open as long as the object lives.
  const std::vector<FileDescriptor> sockets_;
  std::uint64_t exchanges_ = 0;
  std::atomic<bool> aborted_{false};
};

}  // namespace neuroshard
