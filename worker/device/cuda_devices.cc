#include "worker/device/cuda_devices.h"

#include <memory>

#ifdef NEUROSHARD_WITH_NCCL
#include "kernels/cuda/cuda_device.h"
#include "kernels/nccl/nccl_backend.h"
#endif

namespace neuroshard {

#ifdef NEUROSHARD_WITH_NCCL

StatusOr<std::vector<DeviceSpec>> CudaDeviceSpecs() {
  const int count = cuda::CountCudaDevices();
  if (count == 0) return Unavailable("there is no usable CUDA device on this host");
  NS_ASSIGN_OR_RETURN(const std::shared_ptr<const NcclLibrary> nccl, NcclLibrary::Load());
  std::vector<DeviceSpec> specs;
  for (int i = 0; i < count; ++i) {
    specs.push_back({.create = [i, nccl]() -> StatusOr<std::unique_ptr<DeviceBackend>> {
                       return CudaDevice::Create(i, std::make_shared<const NcclBackend>(nccl, i));
                     },
                     .core = std::nullopt});
  }
  return specs;
}

#else

StatusOr<std::vector<DeviceSpec>> CudaDeviceSpecs() {
  return FailedPrecondition("this neuroshard-worker was built without the cuda backend");
}

#endif

}  // namespace neuroshard
