#include "worker/device/device_executor.h"

#include "kernels/machine/machine.h"

namespace neuroshard {

DeviceExecutor::~DeviceExecutor() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void DeviceExecutor::Push(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    queue_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void DeviceExecutor::Loop(std::optional<int> core) {
  if (core.has_value()) PinThisThread(*core).IgnoreError();
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && queue_.empty()) lock.Wait(changed_);
    if (queue_.empty()) return;
    std::function<void()> task = std::move(queue_.front());
    queue_.pop_front();
    lock.Unlock();
    task();
    task = nullptr;  // what it captured is destroyed here, on this thread and without the lock
    lock.Lock();
  }
}

}  // namespace neuroshard
