#include "worker/device/device_inventory.h"

#include "common/base/failure_reason.h"

namespace neuroshard {

DeviceLease::DeviceLease(DeviceLease&& other) noexcept
    : inventory_(std::exchange(other.inventory_, nullptr)), device_(other.device_) {}

DeviceLease& DeviceLease::operator=(DeviceLease&& other) noexcept {
  if (this != &other) {
    Release();
    inventory_ = std::exchange(other.inventory_, nullptr);
    device_ = other.device_;
  }
  return *this;
}

DeviceLease::~DeviceLease() { Release(); }

void DeviceLease::Release() {
  if (inventory_ != nullptr) std::exchange(inventory_, nullptr)->Release(device_);
}

const DeviceProperties& DeviceLease::properties() const { return inventory_->properties(device_); }

StatusOr<std::unique_ptr<DeviceInventory>> DeviceInventory::Create(std::vector<DeviceSpec> specs,
                                                                   BusyObserver observer) {
  if (specs.empty()) return InvalidArgument("a worker needs at least one device");
  std::unique_ptr<DeviceInventory> inventory(new DeviceInventory(std::move(observer)));
  for (DeviceSpec& spec : specs) {
    inventory->devices_.push_back(std::make_unique<Device>(spec.core));
    Device& device = *inventory->devices_.back();
    Status made = device.executor
                      .Run([&device, &spec]() -> Status {
                        NS_ASSIGN_OR_RETURN(device.backend, spec.create());
                        device.properties = device.backend->properties();
                        return absl::OkStatus();
                      })
                      .get();
    if (!made.ok()) return Annotate(made, fmt::format("device {}", inventory->size() - 1));
  }
  {
    const MutexLock lock(inventory->mutex_);
    inventory->jobs_.resize(inventory->devices_.size());
  }
  for (int i = 0; inventory->observer_ && i < inventory->size(); ++i)
    inventory->observer_(i, false);
  return inventory;
}

DeviceInventory::~DeviceInventory() {
  for (auto& device : devices_) {
    device->executor.Run([&device] { device->backend.reset(); }).wait();
  }
}

void DeviceInventory::SetFailureObserver(
    std::function<void(int device, const Status& error)> observer) {
  const MutexLock lock(mutex_);
  failure_observer_ = std::move(observer);
}

StatusOr<DeviceLease> DeviceInventory::Lease(int device, std::string job) {
  if (device < 0 || device >= size()) {
    return NotFound("no device {}: this worker has {}", device, size());
  }
  const MutexLock lock(mutex_);
  std::string& holder = jobs_[device];
  if (!holder.empty()) {
    return WithReason(
        ResourceExhausted("device {} ({}) is held by {}; one job at a time per device", device,
                          devices_[device]->properties.name, holder),
        FailureReason::kOverloaded);
  }
  holder = job.empty() ? "an unnamed job" : std::move(job);
  if (observer_) observer_(device, true);
  return DeviceLease(this, device);
}

void DeviceInventory::Release(int device) {
  const Status health = devices_[device]->backend->Health();
  const MutexLock lock(mutex_);
  if (!health.ok()) {
    jobs_[device] = "nothing any more: " + Message(health);
    if (failure_observer_) failure_observer_(device, health);
    return;
  }
  jobs_[device].clear();
  if (observer_) observer_(device, false);
}

std::vector<DeviceDescription> DeviceInventory::Describe() const {
  std::vector<DeviceDescription> descriptions;
  const MutexLock lock(mutex_);
  for (int i = 0; i < size(); ++i) {
    descriptions.push_back(
        {.index = i, .properties = devices_[i]->properties, .running_job = jobs_[i]});
  }
  return descriptions;
}

}  // namespace neuroshard
