#include "kernels/tcp/tcp_backend.h"

#include <chrono>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/stop_signal.h"
#include "kernels/machine/machine.h"
#include "kernels/tcp/rank_sockets.h"
#include "kernels/tcp/tcp_communicator.h"
#include "kernels/tcp/tcp_mesh.h"

namespace neuroshard {
namespace {

class PendingTcpCommunicator final : public PendingCommunicator {
 public:
  PendingTcpCommunicator(const CommunicatorSpec& spec, std::map<std::string, std::string> network,
                         std::unique_ptr<RankSockets> sockets)
      : spec_(spec), network_(std::move(network)), sockets_(std::move(sockets)) {}

  const std::string& address() const override { return sockets_->address(); }

  Status CheckAddress(const std::string& address) const override {
    return sockets_->CheckAddress(address);
  }

  StatusOr<std::unique_ptr<Communicator>> Connect(std::vector<std::string> addresses) override {
    if (connect_was_called_) return FailedPrecondition("Connect was called before");
    const auto deadline = std::chrono::steady_clock::now() + spec_.timeout;
    auto connected = sockets_->Connect(addresses, deadline, stop_);
    if (absl::IsInvalidArgument(connected.status())) {
      return Annotate(connected.status(), "addresses");
    }
    connect_was_called_ = true;
    if (!connected.ok()) {
      return Annotate(connected.status(), fmt::format("connecting rank {} in a group of {}",
                                                      spec_.rank, spec_.world_size));
    }
    const auto mesh = std::make_shared<TcpMesh>(*std::move(connected));
    {
      const MutexLock lock(mutex_);
      mesh_ = mesh;
      if (stop_.ShouldStop()) mesh->Abort();
    }
    auto communicator = std::make_unique<TcpCommunicator>(spec_, network_, mesh);
    // The peers may still be missing each other.
    NS_RETURN_IF_ERROR(communicator->Barrier());
    return communicator;
  }

  void Abort() override {
    stop_.Stop();
    const MutexLock lock(mutex_);
    if (mesh_ != nullptr) mesh_->Abort();
  }

 private:
  const CommunicatorSpec spec_;
  const std::map<std::string, std::string> network_;
  const std::unique_ptr<RankSockets> sockets_;
  bool connect_was_called_ = false;
  ManualStop stop_;
  Mutex mutex_;
  std::shared_ptr<TcpMesh> mesh_ NS_GUARDED_BY(mutex_);  // once connected
};

}  // namespace

std::map<std::string, std::string> TcpBackend::details() const {
  return {{"tcp_bind",
           options_.network_interface.empty() ? options_.hostname : options_.network_interface}};
}

StatusOr<std::unique_ptr<PendingCommunicator>> TcpBackend::Open(
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
  auto sockets = RankSockets::Open(
      spec.rank, spec.world_size, *local,
      options_.networks.empty() ? std::vector{local->network} : options_.networks);
  if (!sockets.ok()) {
    return Unavailable("cannot listen on {}: {}", where, Message(sockets.status()));
  }
  return std::make_unique<PendingTcpCommunicator>(spec, NetworkProperties(*local),
                                                  *std::move(sockets));
}

}  // namespace neuroshard
