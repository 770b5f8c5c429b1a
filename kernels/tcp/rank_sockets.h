// The connections between the ranks of a group, whose peers prove who they are.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file_descriptor.h"
#include "common/base/ip_network.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "kernels/machine/machine.h"

namespace neuroshard {

// One rank's connections to its peers. Of two ranks the one with the larger number dials. Both then
// prove that they know the keys in both addresses, which are random and told to the group alone, by
// a hash that holds for these two ranks and this direction; the keys themselves are never sent.
// For one thread.
class RankSockets {
 public:
  // Takes a port, which refuses connections until Connect. `networks`: where peers may be, for
  // dialling as for accepting. UNAVAILABLE when the address cannot be bound.
  static StatusOr<std::unique_ptr<RankSockets>> Open(int rank, int size, const LocalAddress& local,
                                                     std::vector<IpNetwork> networks);

  // "neuroshard-tcp/3 10.0.0.1:4242 KEY"; a secret of the group.
  const std::string& address() const { return address_; }
  // INVALID_ARGUMENT: it is no such text, or outside of the networks (which are quoted).
  Status CheckAddress(const std::string& address) const;

  // Listens until every peer is connected; returns their sockets, the own rank's not open. Peers
  // may call it later: dialling is repeated. Connections from outside of the networks are closed
  // unread, others when their first bytes are no proof. ABORTED with the missing ranks at the
  // deadline or when `stop` stops; call it once, but for INVALID_ARGUMENT, when nothing was done:
  // not one address a rank (addresses[r] is rank r's), or one that CheckAddress refuses.
  StatusOr<std::vector<FileDescriptor>> Connect(const std::vector<std::string>& addresses,
                                                std::chrono::steady_clock::time_point deadline,
                                                const StopSignal& stop);

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Address {
    SocketAddress socket;
    std::string key;
  };
  // A peer that this rank dials.
  struct Dial {
    enum class State { kWaits, kConnects, kAwaitsProof, kDone };
    int rank = 0;
    State state = State::kWaits;
    TimePoint retry_at{};
    std::chrono::milliseconds retry_after{1};
    FileDescriptor fd{};
    std::string received{};
    std::string last_error = "not dialled yet";
  };
  // An accepted connection that has not proven whose it is.
  struct Accepted {
    FileDescriptor fd;
    std::string received;
    TimePoint deadline;
  };

  RankSockets(int rank, int size, const LocalAddress& local, std::vector<IpNetwork> networks)
      : rank_(rank), size_(size), local_(local), networks_(std::move(networks)) {}

  StatusOr<Address> ParseAddress(const std::string& text) const;
  std::string Proof(const char* of, int dialler, int listener) const;
  std::string Hello(int dialler, int listener) const;
  void StartDial(Dial& dial);
  void ContinueDial(Dial& dial);
  void FailDial(Dial& dial, std::string why);
  void AcceptConnections();
  // False: the connection is a peer's now, or was refused.
  bool ContinueAccept(Accepted& accepted);
  void WaitForEvents(TimePoint until);
  bool Complete() const;
  std::string Missing() const;

  const int rank_;
  const int size_;
  const LocalAddress local_;
  const std::vector<IpNetwork> networks_;
  FileDescriptor listener_;
  std::string key_;
  std::string address_;

  std::vector<Address> peers_;
  std::vector<FileDescriptor> sockets_;  // by rank
  std::vector<Dial> dials_;
  std::vector<Accepted> accepted_;
  int refused_ = 0;  // connections from outside of the networks, or without a proof
};

}  // namespace neuroshard
