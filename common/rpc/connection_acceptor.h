// ConnectionAcceptor: accepts TCP connections for a gRPC server, within a limit.
//
// gRPC 1.51 closes its listening socket for good when accept(2) fails once, as it does when
// descriptors run out (CVE-2023-4785), and takes any number of connections. So connections are
// accepted here and handed in.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/observe/rpc_metrics.h"

namespace neuroshard {

// Raises the soft limit on open descriptors of this process to the hard one; returns it.
int RaiseDescriptorLimit();

// One thread. A connection beyond the limit is reset at once. While descriptors have run out,
// connections wait in the kernel's queue.
class ConnectionAcceptor {
 public:
  // Owns `listening`, sockets that listen and do not block. `take` owns the descriptor that it is
  // called with, from the acceptor's thread. At most `max_connections` of them are open at a time.
  // `metrics` may be null, else outlives this. UNAVAILABLE when descriptors have run out.
  static StatusOr<std::unique_ptr<ConnectionAcceptor>> Start(std::vector<int> listening,
                                                             int max_connections,
                                                             std::function<void(int fd)> take,
                                                             RpcMetrics* metrics);
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

 private:
  ConnectionAcceptor(std::vector<int> listening, int max_connections,
                     std::function<void(int fd)> take, RpcMetrics* metrics, int wake_fd);
  void Run();
  void Accept(int listening_fd);
  // Whether one more connection may be open. Amortised O(1): connections that were closed are found
  // at most every tenth of a second, in one pass over all, and once a second for the metrics.
  bool HasRoom();
  void FindClosed();
  void Report() const;

  const std::vector<int> listening_;
  const int max_connections_;
  const std::function<void(int)> take_;
  RpcMetrics* const metrics_;
  const int wake_fd_;  // an eventfd: readable once the thread shall end
  // Connections handed over: descriptor -> inode of its socket. Nobody tells this object when one
  // is closed; its descriptor is then gone or has another inode.
  std::unordered_map<int, ino_t> handed_over_;
  std::chrono::steady_clock::time_point last_look_;
  std::thread thread_;  // last: starts when everything else is there
};

}  // namespace neuroshard
