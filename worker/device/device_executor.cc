#include "worker/device/device_executor.h"

#include "kernels/machine/affinity.h"

namespace neuroshard {

DeviceExecutor::DeviceExecutor(std::optional<int> core) : thread_([this, core] { Loop(core); }) {}

DeviceExecutor::~DeviceExecutor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void DeviceExecutor::Push(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void DeviceExecutor::Loop(std::optional<int> core) {
  if (core.has_value()) PinThisThread(*core).IgnoreError();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it captured is destroyed here, on this thread and without the lock
    lock.lock();
  }
}

}  // namespace neuroshard
