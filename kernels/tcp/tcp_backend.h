// Collectives of this project between CPU ranks: pairwise all-to-all and rings, over TCP.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/domain/backend_names.h"
#include "kernels/api/collective.h"
#include "kernels/machine/machine.h"

namespace neuroshard {

// Every communicator owns its sockets and takes them with it. Peers are authenticated (RankSockets),
// but what they send afterwards is neither encrypted nor protected. Thread-safe.
class TcpBackend final : public CollectiveBackend {
 public:
  explicit TcpBackend(CollectiveOptions options) : options_(std::move(options)) {}

  std::string name() const override { return std::string(kNeuroshardTcp); }
  std::map<std::string, std::string> details() const override;
  // UNAVAILABLE when the hostname or interface cannot be bound.
  StatusOr<std::unique_ptr<PendingCommunicator>> Open(const CommunicatorSpec& spec) const override;

 private:
  // The interface whose address it is, else the host.
  const std::string& where() const {
    return options_.interface.empty() ? options_.host : options_.interface;
  }

  const CollectiveOptions options_;
};

}  // namespace neuroshard
