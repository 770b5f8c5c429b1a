#include "kernels/gloo/gloo_backend.h"

#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gloo/config.h"
#include "gloo/transport/tcp/device.h"
#include "kernels/gloo/background_threads.h"
#include "kernels/gloo/gloo_communicator.h"
#include "kernels/gloo/gloo_mesh.h"
#include "kernels/gloo/sigpipe_guard.h"

namespace neuroshard {
namespace {

class PendingGlooCommunicator final : public PendingCommunicator {
 public:
  explicit PendingGlooCommunicator(std::shared_ptr<GlooMesh> mesh)
      : mesh_(std::move(mesh)), address_(mesh_->address()) {}

  const std::string& address() const override { return address_; }

  StatusOr<std::unique_ptr<Communicator>> Connect(std::vector<std::string> addresses) override {
    if (std::exchange(connect_was_called_, true)) {
      return FailedPrecondition("Connect was called before");
    }
    const SigpipeGuard guard;
    try {
      mesh_->Connect(addresses);
    } catch (const std::invalid_argument& error) {
      return InvalidArgument("addresses: {}", error.what());
    } catch (const std::exception& error) {
      return absl::AbortedError(fmt::format("connecting rank {} in a group of {}: {}", mesh_->rank,
                                            mesh_->size, error.what()));
    }
    auto communicator = std::make_unique<GlooCommunicator>(mesh_);
    // A socket connects as soon as the peer listens; only the peer's answer says that it has come.
    NS_RETURN_IF_ERROR(communicator->Barrier());
    return communicator;
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
  ::gloo::transport::tcp::attr attributes;
  if (options_.network_interface.empty()) {
    attributes.hostname = options_.hostname;
  } else {
    attributes.iface = options_.network_interface;
  }
  // Both are inherited by the device's I/O thread.
  const SigpipeGuard guard;
  const BackgroundThreads background;
  try {
    // A device, that is an I/O thread, a communicator: several ranks of one process must not share
    // it while they are measured.
    auto device = ::gloo::transport::tcp::CreateDevice(attributes);
    return std::make_unique<PendingGlooCommunicator>(
        std::make_shared<GlooMesh>(spec.rank, spec.world_size, std::move(device), spec.timeout));
  } catch (const std::exception& error) {
    return Unavailable(
        "cannot listen on {}: {}",
        options_.network_interface.empty() ? options_.hostname : options_.network_interface,
        error.what());
  }
}

}  // namespace neuroshard
