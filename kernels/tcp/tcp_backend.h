// Collectives of this project between CPU ranks: pairwise all-to-all and rings, over TCP.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ip_network.h"
#include "common/base/status.h"
#include "common/domain/backend_names.h"
#include "kernels/api/collective.h"

namespace neuroshard {

// Where ranks listen, and what they connect to.
struct TcpOptions {
  // Address that this host's ranks listen on, while a group connects, and that the other hosts can
  // reach. Peers are authenticated (RankSockets), but what they send afterwards is neither
  // encrypted nor protected.
  std::string hostname = "127.0.0.1";
  // "eth0": listen on the address of this interface instead. Empty: use hostname.
  std::string network_interface;
  // Peers outside of these are neither dialled nor accepted. Empty: the network of that address.
  std::vector<IpNetwork> networks = {};
};

// Every communicator owns its sockets and takes them with it. Thread-safe.
class TcpBackend final : public CollectiveBackend {
 public:
  explicit TcpBackend(TcpOptions options) : options_(std::move(options)) {}

  std::string name() const override { return std::string(kNeuroshardTcp); }
  std::map<std::string, std::string> details() const override;
  // UNAVAILABLE when the hostname or interface cannot be bound.
  StatusOr<std::unique_ptr<PendingCommunicator>> Open(const CommunicatorSpec& spec) const override;

 private:
  TcpOptions options_;
};

}  // namespace neuroshard
