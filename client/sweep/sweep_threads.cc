#include "client/sweep/sweep_threads.h"

#include <thread>

namespace neuroshard {
namespace {

// How late a stop may be noticed.
constexpr std::chrono::milliseconds kPoll{50};

}  // namespace

bool RunMonitored(const std::vector<std::function<void()>>& loops, const StopSignal& stop,
                  ProgressDisplay& display, const std::function<void()>& on_stop) {
  Mutex mutex;
  std::condition_variable ended;
  std::size_t running = loops.size();
  std::vector<std::thread> threads;
  for (const std::function<void()>& loop : loops) {
    threads.emplace_back([&, &body = loop] {
      body();
      const MutexLock lock(mutex);
      --running;
      ended.notify_all();
    });
  }
  bool stopped = false;
  MutexLock lock(mutex);
  while (running != 0) {
    const auto next = std::chrono::steady_clock::now() + kPoll;
    while (running != 0 && lock.WaitUntil(ended, next)) {
    }
    if (running == 0) break;
    lock.Unlock();
    if (!stopped && stop.ShouldStop()) {
      stopped = true;
      on_stop();
    }
    display.Tick();
    lock.Lock();
  }
  lock.Unlock();
  for (std::thread& thread : threads) thread.join();
  return stopped;
}

FailureKind ClassifyFailure(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return FailureKind::kBusy;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return FailureKind::kSample;
    default:
      return FailureKind::kConnection;
  }
}

}  // namespace neuroshard
