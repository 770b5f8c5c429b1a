#include "kernels/nccl/nccl_backend.h"

#include <cstdlib>

#include "kernels/nccl/nccl_communicator.h"

namespace neuroshard {
namespace {

class PendingNcclCommunicator final : public PendingCommunicator {
 public:
  PendingNcclCommunicator(std::shared_ptr<NcclRank> rank,
                          std::unique_ptr<NcclCommunicator> communicator, std::string address,
                          std::vector<IpNetwork> networks, std::string clock)
      : rank_(std::move(rank)),
        communicator_(std::move(communicator)),
        address_(std::move(address)),
        networks_(std::move(networks)),
        clock_(std::move(clock)) {}

  const std::string& address() const override { return address_; }

  // Those of the ranks that say nothing are not connected to.
  Status CheckAddress(const std::string& address) const override {
    ncclUniqueId id{};
    if (networks_.empty() || !HexToBytes(address, id.internal)) return absl::OkStatus();
    return CheckUniqueId(id.internal, networks_);
  }

  StatusOr<std::unique_ptr<Communicator>> Connect(std::vector<std::string> addresses) override {
    if (communicator_ == nullptr) return FailedPrecondition("Connect was called before");
    ncclUniqueId id{};
    if (static_cast<int>(addresses.size()) != rank_->spec().world_size ||
        !HexToBytes(addresses[0], id.internal)) {
      return InvalidArgument("addresses: need one a rank, the first with a unique id of NCCL");
    }
    NS_RETURN_IF_ERROR(CheckAddress(addresses[0]));
    std::unique_ptr<NcclCommunicator> communicator = std::move(communicator_);
    NS_RETURN_IF_ERROR(communicator->Connect(id, clock_));
    communicator->set_network(NetworkOfRank(id));
    return communicator;
  }

  void Abort() override { rank_->Abort(); }

 private:
  // NCCL tells nobody what it chose. Known are the interface that it was told to use, if it was
  // told one by its whole name, and rank 0's address.
  std::map<std::string, std::string> NetworkOfRank(const ncclUniqueId& id) const {
    if (const char* told = std::getenv("NCCL_SOCKET_IFNAME"); told != nullptr && *told != '\0') {
      const auto local = FindLocalAddress("", *told == '=' ? told + 1 : told);
      if (local.ok()) return NetworkProperties(*local);
    }
    const std::vector<SocketAddress> addresses = AddressesInUniqueId(id.internal);
    if (rank_->spec().rank != 0 || addresses.empty()) return {};
    return NetworkProperties(PlaceOf(addresses.front()));
  }

  const std::shared_ptr<NcclRank> rank_;
  std::unique_ptr<NcclCommunicator> communicator_;  // null once Connect was called
  const std::string address_;
  const std::vector<IpNetwork> networks_;
  const std::string clock_;
};

}  // namespace

std::map<std::string, std::string> NcclBackend::details() const {
  return {{"nccl", library_->Version()}};
}

StatusOr<std::unique_ptr<PendingCommunicator>> NcclBackend::Open(
    const CommunicatorSpec& spec) const {
  NS_RETURN_IF_ERROR(CheckSpec(spec));
  // A stream of its own: an aborted group leaves none behind in that of the device.
  NS_ASSIGN_OR_RETURN(std::shared_ptr<cuda::CudaGpu> gpu, cuda::CudaGpu::Create(device_));
  std::string address = fmt::format("nccl rank {}", spec.rank);
  if (spec.rank == 0) {
    ncclUniqueId id{};
    if (const ncclResult_t result = library_->GetUniqueId(&id); result != ncclSuccess) {
      return Unavailable("NCCL has no unique id to give: {}", library_->GetErrorString(result));
    }
    address = absl::BytesToHexString(absl::string_view(id.internal, sizeof id.internal));
  }
  auto rank = std::make_shared<NcclRank>(library_, spec);
  NS_ASSIGN_OR_RETURN(auto communicator, NcclCommunicator::Create(rank, std::move(gpu)));
  return std::make_unique<PendingNcclCommunicator>(std::move(rank), std::move(communicator),
                                                   std::move(address), networks_, clock_);
}

}  // namespace neuroshard
