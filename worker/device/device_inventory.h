// Device inventory: the devices of this worker and their leases.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "kernels/api/device_backend.h"
#include "worker/device/device_executor.h"

namespace neuroshard {

// A device to be made. `create` runs on the device's own thread.
struct DeviceSpec {
  std::function<StatusOr<std::unique_ptr<DeviceBackend>>()> create;
  std::optional<int> core;  // of the device's thread
};

// A device and who holds it.
struct DeviceDescription {
  int index = 0;
  DeviceProperties properties;
  std::string running_job;  // empty: free
};

class DeviceInventory;

// The right to run work on one device. Given back on destruction, by which time all work run
// through it must have ended. Must not outlive the inventory.
class DeviceLease {
 public:
  DeviceLease(DeviceLease&& other) noexcept;
  DeviceLease& operator=(DeviceLease&& other) noexcept;
  ~DeviceLease();

  int device() const { return device_; }
  const DeviceProperties& properties() const;

  // Runs work(DeviceBackend&) on the device's thread.
  template <typename Work>
  [[nodiscard]] std::future<std::invoke_result_t<Work, DeviceBackend&>> Run(Work work);

 private:
  friend class DeviceInventory;
  DeviceLease(DeviceInventory* inventory, int device) : inventory_(inventory), device_(device) {}
  void Release();

  DeviceInventory* inventory_;  // null when moved from
  int device_;
};

// Thread-safe.
class DeviceInventory {
 public:
  // Told of every device's state at first and of every change; called with the inventory's lock
  // held, so it must be quick and not call back.
  using BusyObserver = std::function<void(int device, bool busy)>;

  // Makes every device, or says which one failed and why.
  static StatusOr<std::unique_ptr<DeviceInventory>> Create(std::vector<DeviceSpec> specs,
                                                           BusyObserver observer = nullptr);
  ~DeviceInventory();

  // Told of a device that came back from a job with an error that only a new process gets rid of;
  // the device is not leased any more. Called as the other observer is.
  void SetFailureObserver(std::function<void(int device, const Status& error)> observer);

  int size() const { return static_cast<int>(devices_.size()); }
  const DeviceProperties& properties(int device) const { return devices_[device]->properties; }

  // Never waits. RESOURCE_EXHAUSTED names the device and the job that holds it; NOT_FOUND when
  // there is no such device.
  StatusOr<DeviceLease> Lease(int device, std::string job);

  std::vector<DeviceDescription> Describe() const;

 private:
  friend class DeviceLease;
  struct Device {
    explicit Device(std::optional<int> core) : executor(core) {}
    DeviceProperties properties;
    std::unique_ptr<DeviceBackend> backend;  // made, used and destroyed on the executor's thread
    DeviceExecutor executor;
  };

  explicit DeviceInventory(BusyObserver observer) : observer_(std::move(observer)) {}
  void Release(int device);

  mutable Mutex mutex_;
  BusyObserver observer_;
  std::function<void(int, const Status&)> failure_observer_ NS_GUARDED_BY(mutex_);
  // By device: what holds it; empty: free.
  std::vector<std::string> jobs_ NS_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Device>> devices_;  // fixed after Create
};

template <typename Work>
std::future<std::invoke_result_t<Work, DeviceBackend&>> DeviceLease::Run(Work work) {
  DeviceInventory::Device& device = *inventory_->devices_[device_];
  return device.executor.Run(
      [&device, work = std::move(work)]() mutable { return work(*device.backend); });
}

}  // namespace neuroshard
