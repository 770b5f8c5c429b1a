#include "worker/device/cuda_devices.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#ifdef NEUROSHARD_WITH_NCCL
#include "kernels/cuda/cuda_device.h"
#include "kernels/nccl/nccl_backend.h"
#endif

namespace neuroshard {

#ifdef NEUROSHARD_WITH_NCCL

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

}  // namespace

StatusOr<std::vector<DeviceSpec>> CudaDeviceSpecs(const std::vector<IpNetwork>& networks) {
  NS_ASSIGN_OR_RETURN(const int count, cuda::CountCudaDevices());
  const StatusOr<std::shared_ptr<const NcclLibrary>> nccl = NcclLibrary::Load();
  std::vector<DeviceSpec> specs;
  for (int i = 0; i < count; ++i) {
    std::shared_ptr<const CollectiveBackend> collectives;
    if (nccl.ok()) {
      collectives = std::make_shared<const NcclBackend>(*nccl, i, networks);
    } else {
      collectives = std::make_shared<const MissingCollectives>(nccl.status());
    }
    specs.push_back({.create = [i, collectives]() -> StatusOr<std::unique_ptr<DeviceBackend>> {
                       return CudaDevice::Create(i, collectives);
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
