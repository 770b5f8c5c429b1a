#include "kernels/gloo/gloo_backend.h"

#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gloo/config.h"
#include "kernels/gloo/gloo_communicator.h"
#include "kernels/gloo/gloo_mesh.h"
#include "kernels/gloo/rank_sockets.h"
#include "kernels/gloo/thread_guards.h"
#include "kernels/machine/machine.h"

namespace neuroshard {
namespace {

class PendingGlooCommunicator final : public PendingCommunicator {
 public:
  explicit PendingGlooCommunicator(std::shared_ptr<GlooMesh> mesh)
      : mesh_(std::move(mesh)), address_(mesh_->address()) {}

  const std::string& address() const override { return address_; }

  StatusOr<std::unique_ptr<Communicator>> Connect(std::vector<std::string> addresses) override {
    if (connect_was_called_) return FailedPrecondition("Connect was called before");
    const SigpipeGuard guard;
    // Inherited by the device's I/O thread.
    const BackgroundThreads background;
    try {
      const Status status = mesh_->Connect(addresses);
      if (absl::IsInvalidArgument(status)) return Annotate(status, "addresses");
      connect_was_called_ = true;
      if (!status.ok()) throw std::runtime_error(Message(status));
    } catch (const std::exception& error) {
      return absl::AbortedError(fmt::format("connecting rank {} in a group of {}: {}", mesh_->rank,
                                            mesh_->size, error.what()));
    }
    auto communicator = std::make_unique<GlooCommunicator>(mesh_);
    // A socket connects as soon as the peer listens; only the peer's answer says that it has come.
    NS_RETURN_IF_ERROR(communicator->Barrier());
    return communicator;
  }

  Status CheckAddress(const std::string& address) const override {
    return mesh_->CheckAddress(address);
  }

  void Abort() override { mesh_->Abort(); }

 private:
  const std::shared_ptr<GlooMesh> mesh_;
  const std::string address_;
  bool connect_was_called_ = false;
};

}  // namespace

std::map<std::string, std::string> GlooBackend::details() const {
  return {
      {"gloo", fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH)},
      {"gloo_transport", "tcp"},
      {"gloo_bind",
       options_.network_interface.empty() ? options_.hostname : options_.network_interface}};
}

StatusOr<std::unique_ptr<PendingCommunicator>> GlooBackend::Open(
    const CommunicatorSpec& spec) const {
  if (spec.world_size < 1 || spec.rank < 0 || spec.rank >= spec.world_size) {
    return InvalidArgument("rank: must be in [0, {}), got {}", spec.world_size, spec.rank);
  }
  if (spec.timeout.count() <= 0) {
    return InvalidArgument("timeout: must be positive, got {} ms", spec.timeout.count());
  }
  const std::string& where =
      options_.network_interface.empty() ? options_.hostname : options_.network_interface;
  const auto local = FindLocalAddress(options_.hostname, options_.network_interface);
  if (!local.ok()) return Unavailable("cannot listen on {}: {}", where, Message(local.status()));
  std::unique_ptr<RankSockets> sockets;
  if (spec.world_size > 1) {
    auto opened = RankSockets::Open(
        spec.rank, spec.world_size, *local,
        options_.networks.empty() ? std::vector{local->network} : options_.networks);
    if (!opened.ok())
      return Unavailable("cannot listen on {}: {}", where, Message(opened.status()));
    sockets = *std::move(opened);
  }
  return std::make_unique<PendingGlooCommunicator>(std::make_shared<GlooMesh>(
      spec.rank, spec.world_size, std::move(sockets), spec.timeout, NetworkProperties(*local)));
}

}  // namespace neuroshard
