#include "kernels/gloo/gloo_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gloo/transport/address.h"
#include "gloo/transport/context.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/unbound_buffer.h"

namespace neuroshard {

GlooMesh::GlooMesh(int mesh_rank, int mesh_size, std::shared_ptr<::gloo::transport::Device> device,
                   std::chrono::milliseconds timeout)
    : ::gloo::Context(mesh_rank, mesh_size) {
  setTimeout(timeout);
  auto transport_context = device->createContext(mesh_rank, mesh_size);
  // A pair gives its connection five times the timeout that its context has now.
  constexpr int kConnectFactor = 5;
  transport_context->setTimeout(std::max(timeout / kConnectFactor, std::chrono::milliseconds(1)));
  for (int peer = 0; peer < mesh_size; ++peer) {
    if (peer == mesh_rank) continue;
    const std::vector<char> bytes = transport_context->createPair(peer)->address().bytes();
    address_.append(bytes.begin(), bytes.end());
  }
  transport_context->setTimeout(timeout);
  device_ = std::move(device);
  transportContext_ = std::move(transport_context);
}

void GlooMesh::Connect(std::span<const std::string> addresses) {
  if (addresses.size() != static_cast<std::size_t>(size)) {
    throw std::invalid_argument(
        fmt::format("{} addresses for a group of {} ranks", addresses.size(), size));
  }
  for (int peer = 0; peer < size; ++peer) {
    if (addresses[peer].size() != address_.size()) {
      throw std::invalid_argument(fmt::format("the address of rank {} has {} bytes, expected {}",
                                              peer, addresses[peer].size(), address_.size()));
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + getTimeout();
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    // Each pair has a timeout of its own.
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("connecting all ranks one after the other took too long");
    }
    // The peer lists its peers without itself.
    const std::size_t entry_bytes = address_.size() / (size - 1);
    const std::size_t entry = rank < peer ? rank : rank - 1;
    const auto begin = addresses[peer].begin() + static_cast<std::ptrdiff_t>(entry * entry_bytes);
    transportContext_->getPair(peer)->connect(
        std::vector<char>(begin, begin + static_cast<std::ptrdiff_t>(entry_bytes)));
  }
}

void GlooMesh::Abort() noexcept {
  // The one public way to close all pairs and to tell those who wait for them: a wait that times
  // out.
  try {
    std::byte unused{};
    createUnboundBuffer(&unused, sizeof(unused))->waitRecv(nullptr, std::chrono::milliseconds(1));
  } catch (const std::exception&) {
    // The timeout.
  }
}

}  // namespace neuroshard
