#include "worker/device/device_inventory.h"

#include <utility>

#include "common/base/failure_reason.h"

namespace neuroshard {

void DeviceRelease::operator()(DeviceSession*) const { inventory->Release(device); }

DeviceInventory::DeviceInventory(std::vector<std::unique_ptr<DeviceSession>> devices,
                                 BusyObserver observer)
    : observer_(std::move(observer)), jobs_(devices.size()), devices_(std::move(devices)) {
  for (int i = 0; observer_ && i < size(); ++i) observer_(i, false);
}

StatusOr<DeviceLease> DeviceInventory::Lease(int device, std::string job) {
  if (device < 0 || device >= size()) {
    return NotFound("no device {}: this worker has {}", device, size());
  }
  {
    const MutexLock lock(mutex_);
    std::string& holder = jobs_[device];
    if (!holder.empty()) {
      return WithReason(
          ResourceExhausted("device {} ({}) is held by {}; one job at a time per device", device,
                            properties(device).name, holder),
          FailureReason::kOverloaded);
    }
    holder = job.empty() ? "an unnamed job" : std::move(job);
    if (observer_) observer_(device, true);
  }
  DeviceLease lease(devices_[device].get(), {this, device});
  NS_RETURN_IF_ERROR(Annotate(lease->Prepare(), fmt::format("device {}", device)));
  return lease;
}

void DeviceInventory::Release(int device) {
  const MutexLock lock(mutex_);
  jobs_[device].clear();
  if (observer_) observer_(device, false);
}

std::vector<DeviceDescription> DeviceInventory::Describe() const {
  std::vector<DeviceDescription> descriptions;
  const MutexLock lock(mutex_);
  for (int i = 0; i < size(); ++i) {
    descriptions.push_back({.index = i, .properties = properties(i), .running_job = jobs_[i]});
  }
  return descriptions;
}

}  // namespace neuroshard
