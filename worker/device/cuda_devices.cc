#include "worker/device/cuda_devices.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#ifdef NEUROSHARD_WITH_CUDA
#include "kernels/cuda/cuda_device.h"
#endif
#ifdef NEUROSHARD_WITH_NCCL
#include "kernels/nccl/nccl_backend.h"
#endif

namespace neuroshard {

#ifdef NEUROSHARD_WITH_CUDA

namespace {

// GPUs can be measured alone where NCCL is not installed.
class MissingCollectives final : public CollectiveBackend {
 public:
  explicit MissingCollectives(Status reason) : reason_(std::move(reason)) {}
  std::string name() const override { return "none"; }
  std::map<std::string, std::string> details() const override {
    return {{"nccl", Message(reason_)}};
  }
  StatusOr<std::unique_ptr<PendingCommunicator>> Open(const CommunicatorSpec&) const override {
    return FailedPrecondition("{}", Message(reason_));
  }

 private:
  const Status reason_;
};

std::shared_ptr<const CollectiveBackend> CollectivesOf(
    [[maybe_unused]] int device, [[maybe_unused]] const std::vector<IpNetwork>& networks) {
#ifdef NEUROSHARD_WITH_NCCL
  StatusOr<std::shared_ptr<const NcclLibrary>> nccl = NcclLibrary::Load();
  if (nccl.ok()) return std::make_shared<const NcclBackend>(*std::move(nccl), device, networks);
  return std::make_shared<const MissingCollectives>(nccl.status());
#else
  return std::make_shared<const MissingCollectives>(
      Unavailable("this neuroshard-worker was built without NCCL"));
#endif
}

}  // namespace

StatusOr<std::vector<DeviceSpec>> CudaDeviceSpecs(const std::vector<IpNetwork>& networks) {
  NS_ASSIGN_OR_RETURN(const int count, cuda::CountCudaDevices());
  std::vector<DeviceSpec> specs;
  for (int device = 0; device < count; ++device) {
    specs.push_back({.create = [device, networks]() -> StatusOr<std::unique_ptr<DeviceBackend>> {
                       return CudaDevice::Create(device, CollectivesOf(device, networks));
                     },
                     .core = std::nullopt});
  }
  return specs;
}

#else

StatusOr<std::vector<DeviceSpec>> CudaDeviceSpecs(const std::vector<IpNetwork>&) {
  return FailedPrecondition("this neuroshard-worker was built without the cuda backend");
}

#endif

}  // namespace neuroshard
