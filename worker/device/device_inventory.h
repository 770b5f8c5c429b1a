// Device inventory: the devices of this worker and their leases.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/device/device_session.h"

namespace neuroshard {

// A device and who holds it.
struct DeviceDescription {
  int index = 0;
  DeviceProperties properties;
  std::string running_job;  // empty: free
};

class DeviceInventory;

// Gives a device back to its inventory.
struct DeviceRelease {
  void operator()(DeviceSession* device) const;

  DeviceInventory* inventory = nullptr;
  int device = 0;
};
// The right to use one device. Given back on destruction, by which time all calls of its session
// must have ended. Must not outlive the inventory.
using DeviceLease = std::unique_ptr<DeviceSession, DeviceRelease>;

// The devices of this worker. Each is leased to one job at a time, which names itself to those that
// find it busy. Thread-safe.
class DeviceInventory {
 public:
  // Told of every device's state at first and of every change; called with the inventory's lock
  // held, so it must be quick and not call back.
  using BusyObserver = std::function<void(int device, bool busy)>;

  // Takes at least one device; their order is their number.
  explicit DeviceInventory(std::vector<std::unique_ptr<DeviceSession>> devices,
                           BusyObserver observer = nullptr);

  int size() const { return static_cast<int>(devices_.size()); }
  const DeviceProperties& properties(int device) const { return devices_[device]->properties(); }

  // Never waits for another job. RESOURCE_EXHAUSTED names the device and the job that holds it;
  // NOT_FOUND when there is no such device; UNAVAILABLE when it cannot be used (Prepare).
  StatusOr<DeviceLease> Lease(int device, std::string job);

  std::vector<DeviceDescription> Describe() const;

 private:
  friend struct DeviceRelease;
  void Release(int device);

  mutable Mutex mutex_;
  const BusyObserver observer_;
  // The job that holds each device; empty: free.
  std::vector<std::string> jobs_ NS_GUARDED_BY(mutex_);
  const std::vector<std::unique_ptr<DeviceSession>> devices_;
};

}  // namespace neuroshard
