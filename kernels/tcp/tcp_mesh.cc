#include "kernels/tcp/tcp_mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>

#include "common/base/violations.h"

namespace neuroshard {

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
  for (const SocketFd& socket : sockets_) {
    if (socket.open()) shutdown(socket.get(), SHUT_RDWR);
  }
}

}  // namespace neuroshard
