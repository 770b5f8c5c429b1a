// A Gloo context over connections that were made, and whose peers were authenticated, before Gloo
// sees them.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "gloo/context.h"
#include "kernels/gloo/rank_sockets.h"

namespace neuroshard {

// Gloo's own pairs listen from their creation on and take the first connection that comes, whoever
// makes it. Here RankSockets connects the ranks, in two steps because the workers exchange the
// addresses through their own RPCs.
class GlooMesh final : public ::gloo::Context {
 public:
  // `sockets` are none where there is no peer. The timeout bounds the connection and each exchange.
  // `network` is what Communicator::Network says.
  GlooMesh(int mesh_rank, int mesh_size, std::unique_ptr<RankSockets> sockets,
           std::chrono::milliseconds timeout, std::map<std::string, std::string> network);

  const std::map<std::string, std::string>& network() const { return network_; }

  // Where the peers reach this rank; empty when there is no peer.
  const std::string& address() const { return address_; }
  Status CheckAddress(const std::string& address) const;

  // RankSockets::Connect, then makes Gloo's side. Throws what Gloo throws.
  Status Connect(const std::vector<std::string>& addresses);

  // Closes all connections; what waits for one, Connect included, fails. Any thread, any time.
  void Abort() noexcept;

 private:
  std::unique_ptr<RankSockets> sockets_;  // until connected
  const std::string address_;
  const std::map<std::string, std::string> network_;
  ManualStop aborted_;
  std::atomic<bool> connected_{false};
};

}  // namespace neuroshard
