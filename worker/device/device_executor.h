// DeviceExecutor: the only thread that uses a device.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "common/base/mutex.h"

namespace neuroshard {

// Runs work in the order it was given, all of it on the same thread: device backends and collective
// libraries keep state per thread. Run may be called from any thread, but not from the executor's
// own (it would wait for itself). The destructor runs what is queued and joins.
class DeviceExecutor {
 public:
  // `core`: pins the thread there; a core that the process may not use leaves it unpinned.
  explicit DeviceExecutor(std::optional<int> core = std::nullopt)
      : thread_([this, core] { Loop(core); }) {}
  ~DeviceExecutor();

  DeviceExecutor(DeviceExecutor&&) = delete;

  // The future gets what `work` returns or throws. Unlike std::async's, its destructor does not
  // wait.
  template <typename Work>
  [[nodiscard]] std::future<std::invoke_result_t<Work>> Run(Work work) {
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Work>()>>(std::move(work));
    auto result = task->get_future();
    Push([task] { (*task)(); });
    return result;
  }

 private:
  void Push(std::function<void()> task);
  void Loop(std::optional<int> core);

  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_ NS_GUARDED_BY(mutex_);
  bool stopping_ NS_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when everything above exists
};

}  // namespace neuroshard
