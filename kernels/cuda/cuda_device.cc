#include "kernels/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "common/base/bytes.h"
#include "common/domain/backend_names.h"
#include "kernels/cuda/gpu_embedding_op.h"
#include "kernels/cuda/kernel_launches.h"

namespace neuroshard {
namespace {

// Longer than any enqueueing; ends what would otherwise wait for work that waits for the device.
constexpr std::chrono::milliseconds kLongestEnqueueing{20};

}  // namespace

StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(
    int device, std::shared_ptr<const CollectiveBackend> collectives) {
  NS_ASSIGN_OR_RETURN(std::shared_ptr<cuda::CudaGpu> gpu, cuda::CudaGpu::Create(device));
  std::unique_ptr<CudaDevice> made(new CudaDevice(std::move(gpu), std::move(collectives)));
  NS_RETURN_IF_ERROR(Annotate(made->Prepare(), fmt::format("cuda device {}", device)));
  return made;
}

CudaDevice::CudaDevice(std::shared_ptr<cuda::CudaGpu> gpu,
                       std::shared_ptr<const CollectiveBackend> collectives)
    : gpu_(std::move(gpu)),
      collectives_(std::move(collectives)),
      flush_buffer_(gpu_),
      gate_(gpu_) {}

CudaDevice::~CudaDevice() {
  gpu_->Use();
  if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
  if (end_ != nullptr) (void)cudaEventDestroy(end_);
}

Status CudaDevice::Prepare() {
  cudaDeviceProp device{};
  int runtime = 0, driver = 0;
  char bus[32] = {};
  NS_RETURN_IF_ERROR(
      cuda::CudaStatus(cudaGetDeviceProperties(&device, gpu_->device()), "its properties"));
  NS_RETURN_IF_ERROR(cuda::CudaStatus(cudaEventCreate(&begin_), "an event"));
  NS_RETURN_IF_ERROR(cuda::CudaStatus(cudaEventCreate(&end_), "an event"));
  NS_RETURN_IF_ERROR(gate_.Prepare());
  NS_RETURN_IF_ERROR(cuda::CudaStatus(
      cudaDeviceGetPCIBusId(bus, static_cast<int>(sizeof bus), gpu_->device()), "its bus id"));
  (void)cudaRuntimeGetVersion(&runtime);
  (void)cudaDriverGetVersion(&driver);
  NS_RETURN_IF_ERROR(
      flush_buffer_.Reserve(std::max(std::int64_t{2} * device.l2CacheSize, 128 * kMiB)));
  gpu_->Note(cudaMemsetAsync(flush_buffer_.at(0), 0, flush_buffer_.bytes(), gpu_->stream()),
             "filling the buffer that flushes caches");
  NS_RETURN_IF_ERROR(gpu_->LoadKernels());
  nvml_ = cuda::Nvml::Open(bus);

  properties_.name = device.name;
  properties_.backend = kNeuroshardCuda;
  properties_.collective_backend = collectives_->name();
  properties_.memory_bytes = gpu_->AvailableBytes();
  properties_.embedding = cuda::GpuEmbeddingOp::Abilities();
  properties_.generates_ids = true;
  properties_.details = collectives_->details();
  properties_.details["compute_capability"] = fmt::format("{}.{}", device.major, device.minor);
  properties_.details["multiprocessors"] = std::to_string(device.multiProcessorCount);
  properties_.details["l2_cache_bytes"] = std::to_string(device.l2CacheSize);
  properties_.details["ecc"] = device.ECCEnabled != 0 ? "on" : "off";
  properties_.details["pci_bus_id"] = bus;
  properties_.details["cuda_runtime"] = cuda::VersionText(runtime);
  properties_.details["cuda_driver_api"] = cuda::VersionText(driver);
  return absl::OkStatus();
}

std::map<std::string, std::string> CudaDevice::Conditions() const {
  return nvml_ == nullptr ? std::map<std::string, std::string>{} : nvml_->Read();
}

StatusOr<std::unique_ptr<EmbeddingOp>> CudaDevice::CreateEmbeddingOp(const EmbeddingOpSpec& spec) {
  NS_RETURN_IF_ERROR(Health());
  return cuda::GpuEmbeddingOp::Create(gpu_, spec);
}

void CudaDevice::FlushCache() {
  gpu_->Use();
  gpu_->Note(cuda::LaunchRead(flush_buffer_.at(0), flush_buffer_.bytes(), gpu_->stream()),
             "flushing the cache");
}

double CudaDevice::TimeMs(const std::function<void()>& work) {
  constexpr double kFailed = std::numeric_limits<double>::quiet_NaN();
  if (!gpu_->status().ok()) return kFailed;
  gpu_->Use();
  gate_.Close(kLongestEnqueueing);
  gpu_->Note(cudaEventRecord(begin_, gpu_->stream()), "timing");
  work();
  gpu_->Note(cudaEventRecord(end_, gpu_->stream()), "timing");
  gate_.Open();
  gpu_->Note(cudaEventSynchronize(end_), "the work that was timed");
  float milliseconds = 0;
  if (gpu_->status().ok()) {
    gpu_->Note(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing");
  }
  return gpu_->status().ok() ? static_cast<double>(milliseconds) : kFailed;
}

Status CudaDevice::Health() const {
  gpu_->Probe();
  return gpu_->status();
}

StatusOr<std::unique_ptr<PendingCommunicator>> CudaDevice::OpenCommunicator(
    const CommunicatorSpec& spec) {
  NS_RETURN_IF_ERROR(Health());
  return collectives_->Open(spec);
}

}  // namespace neuroshard
