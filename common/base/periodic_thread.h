// Periodic work on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace neuroshard {

// Calls `work`, each time `period` after the start or after the call before returned. The
// destructor ends a wait at once, and joins.
class PeriodicThread {
 public:
  PeriodicThread(std::chrono::milliseconds period, std::function<void()> work)
      : thread_([period, work = std::move(work)](const std::stop_token& stop) {
          std::mutex mutex;
          std::condition_variable_any stopped;
          std::unique_lock lock(mutex);
          while (true) {
            stopped.wait_for(lock, stop, period, [] { return false; });
            if (stop.stop_requested()) return;
            work();
          }
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace neuroshard
