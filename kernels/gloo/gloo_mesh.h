// A Gloo context that is connected in two steps, because the workers exchange the addresses through
// their own RPCs.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "gloo/context.h"
#include "gloo/transport/device.h"

namespace neuroshard {

// Gloo's rendezvous::Context does the same against a blocking key-value store; splitting it here
// needs neither the store nor a thread that waits in it. Throws what Gloo throws.
class GlooMesh final : public ::gloo::Context {
 public:
  // Listens at once.
  GlooMesh(int mesh_rank, int mesh_size, std::shared_ptr<::gloo::transport::Device> device,
           std::chrono::milliseconds timeout);

  // Where the peers reach this rank: one entry a peer, in rank order. Empty when there is no peer.
  const std::string& address() const { return address_; }

  // addresses[r] is rank r's address(). Blocks until every peer is connected, at most twice the
  // timeout. Throws std::invalid_argument when an address cannot be one of such a mesh.
  void Connect(std::span<const std::string> addresses);

  // Closes all connections; what waits for one, Connect included, throws. Any thread, any time.
  void Abort() noexcept;

 private:
  std::string address_;
};

}  // namespace neuroshard
