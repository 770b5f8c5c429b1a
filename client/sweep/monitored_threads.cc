#include "client/sweep/monitored_threads.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>

namespace neuroshard {
namespace {

// How late a stop may be noticed.
constexpr std::chrono::milliseconds kPoll{50};

}  // namespace

bool RunMonitored(const std::vector<std::function<void()>>& loops, const StopSignal& stop,
                  ProgressDisplay& display, const std::function<void()>& on_stop) {
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t running = loops.size();
  std::vector<std::thread> threads;
  for (const std::function<void()>& loop : loops) {
    threads.emplace_back([&, &body = loop] {
      body();
      const std::lock_guard lock(mutex);
      --running;
      ended.notify_all();
    });
  }
  bool stopped = false;
  std::unique_lock lock(mutex);
  while (!ended.wait_for(lock, kPoll, [&] { return running == 0; })) {
    lock.unlock();
    if (!stopped && stop.ShouldStop()) {
      stopped = true;
      on_stop();
    }
    display.Tick();
    lock.lock();
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  return stopped;
}

}  // namespace neuroshard
