// Stops a group of threads that also wait for time to pass.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace neuroshard {

// Thread-safe. Once stopped, stays stopped.
class StopLatch {
 public:
  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  bool Stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

  // Waits for `duration` or until stopped; returns Stopped().
  bool WaitFor(std::chrono::milliseconds duration) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, duration, [this] { return stopped_; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace neuroshard
