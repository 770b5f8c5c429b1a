// Stops a group of threads that also wait for time to pass.
#pragma once

#include <chrono>
#include <condition_variable>

#include "common/base/mutex.h"

namespace neuroshard {

// Thread-safe. Once stopped, stays stopped.
class StopLatch {
 public:
  void Stop() {
    const MutexLock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  bool Stopped() const {
    const MutexLock lock(mutex_);
    return stopped_;
  }

  // Waits for `duration` or until stopped; returns Stopped().
  bool WaitFor(std::chrono::milliseconds duration) {
    MutexLock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + duration;
    while (!stopped_ && lock.WaitUntil(changed_, deadline)) {
    }
    return stopped_;
  }

 private:
  mutable Mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ NS_GUARDED_BY(mutex_) = false;
};

}  // namespace neuroshard
