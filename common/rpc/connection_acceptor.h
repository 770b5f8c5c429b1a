// ConnectionAcceptor: accepts TCP connections for a gRPC server, within limits.
//
// gRPC 1.51 closes its listening socket for good when accept(2) fails once, as it does when
// descriptors run out (CVE-2023-4785), and takes any number of connections. So connections are
// accepted here and handed in.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/file_descriptor.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/observe/listen_address.h"
#include "common/rpc/flood/call_flood.h"
#include "common/rpc/rpc_gate.h"

namespace neuroshard {

// Raises the soft limit on open descriptors of this process to the hard one; returns it.
int RaiseDescriptorLimit();

struct ConnectionLimits {
  int max_connections = 4096;  // open at a time
  int max_streams_per_connection = 100;
};

// Two threads: one accepts, one looks after what there is, since in a flood gRPC keeps the first for
// as long as a new connection brings calls. A connection beyond the limit is reset at once. While
// descriptors have run out, and during a flood of calls, connections wait in the kernel's queue.
// Connections that cause a flood are reset (flood/call_flood.h).
class ConnectionAcceptor {
 public:
  // `take` owns the descriptor that it is called with, from the accepting thread. Connections are
  // counted in the metrics of `gate`, which outlives this; those that are reset for their calls are
  // in its log, too. UNAVAILABLE when descriptors have run out.
  static StatusOr<std::unique_ptr<ConnectionAcceptor>> Start(std::vector<ListeningSocket> listening,
                                                             const ConnectionLimits& limits,
                                                             std::function<void(int fd)> take,
                                                             RpcGate& gate, CallCounters counters);
  ~ConnectionAcceptor();
  ConnectionAcceptor(ConnectionAcceptor&&) = delete;

 private:
  ConnectionAcceptor(std::vector<ListeningSocket> listening, const ConnectionLimits& limits,
                     std::function<void(int fd)> take, RpcGate& gate, CallCounters counters,
                     FileDescriptor wake)
      : listening_(std::move(listening)),
        max_connections_(limits.max_connections),
        take_(std::move(take)),
        gate_(gate),
        wake_(std::move(wake)),
        flood_(limits.max_streams_per_connection, std::move(counters)),
        watching_([this] { Watch(); }),
        accepting_([this] { AcceptAll(); }) {}
  void AcceptAll();
  void Accept(int listening_fd);
  // Whether one more connection may be open. Amortised O(1): connections that were closed are found
  // at most every tenth of a second, in one pass over all.
  bool HasRoom() NS_REQUIRES(mutex_);
  void FindClosed() NS_REQUIRES(mutex_);
  void Report() const NS_REQUIRES(mutex_);
  // Every twentieth of a second while there are connections.
  void Watch();
  // Ends floods, and returns memory after them.
  void CountCalls();
  void ResetConnectionsOf(const std::set<std::string>& clients);

  const std::vector<ListeningSocket> listening_;
  const int max_connections_;
  const std::function<void(int)> take_;
  RpcGate& gate_;
  const FileDescriptor wake_;         // an eventfd: readable once the accepting thread shall end
  std::atomic<bool> accepts_ = true;  // false in a flood
  Mutex mutex_;
  std::condition_variable changed_;  // a new connection, or the end
  bool stopping_ NS_GUARDED_BY(mutex_) = false;
  // Connections handed over: descriptor -> inode of its socket. Nobody tells this object when one
  // is closed; its descriptor is then gone or has another inode.
  std::unordered_map<int, ino_t> handed_over_ NS_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point last_scan_ NS_GUARDED_BY(mutex_);
  CallFlood flood_;  // the watching thread's own
  // Last: they start when everything else is there.
  std::thread watching_;
  std::thread accepting_;
};

}  // namespace neuroshard
