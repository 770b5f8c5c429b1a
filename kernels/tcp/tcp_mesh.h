// The connected sockets of one rank of a group, and the loop that moves bytes through them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "kernels/tcp/rank_sockets.h"
#include "kernels/tcp/transfer.h"

namespace neuroshard {

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
  explicit TcpMesh(std::vector<SocketFd> sockets) : sockets_(std::move(sockets)) {}

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
  const std::vector<SocketFd> sockets_;
  std::uint64_t exchanges_ = 0;
  std::atomic<bool> aborted_{false};
};

}  // namespace neuroshard
