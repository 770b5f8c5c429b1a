#include "client/sweep/shared_sweep.h"

#include <thread>

namespace neuroshard {
namespace {

// How late a stop may be noticed.
constexpr std::chrono::milliseconds kPoll{50};
// More samples given up end a run: the fault is then hardly theirs.
constexpr int kMaxGivenUp = 10;

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

SharedSweep::SharedSweep(const SweepRun& run) : run_(run) {
  // RetryWindow does the retries.
  const CallPolicy policy{.tls = run.fleet.tls, .max_attempts = 1};
  for (const std::string& address : run.fleet.workers) {
    workers_.push_back(std::make_unique<WorkerClient>(address, policy));
  }
}

void SharedSweep::Stop() {
  waits_.request_stop();
  for (const auto& worker : workers_) worker->Cancel();
}

void SharedSweep::Lost(LostWorker lost) {
  const MutexLock lock(mutex_);
  report_.lost.push_back(std::move(lost));
}

void SharedSweep::Fail(const Status& status) {
  const MutexLock lock(mutex_);
  report_.status.Update(status);
}

SweepReport SharedSweep::report() const {
  const MutexLock lock(mutex_);
  return report_;
}

bool SharedSweep::IsRefusal(const Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
         absl::IsFailedPrecondition(status) || absl::IsOutOfRange(status);
}

bool SharedSweep::Record(const StoredRecord& stored) {
  const bool by_another = absl::IsAlreadyExists(stored.status);
  if (!stored.status.ok() && !by_another) {
    Fail(stored.status);
    return false;
  }
  const bool out_of_memory = stored.out_of_memory && !by_another;
  run_.display.Add(out_of_memory);
  if (by_another) return true;
  const MutexLock lock(mutex_);
  ++report_.recorded;
  if (out_of_memory) ++report_.out_of_memory;
  return true;
}

bool SharedSweep::GiveUp(const std::string& sample_id, const std::string& reason) {
  run_.display.Note(fmt::format("sample {} given up: {}", sample_id, reason));
  const MutexLock lock(mutex_);
  report_.given_up.push_back({sample_id, reason});
  if (static_cast<int>(report_.given_up.size()) <= kMaxGivenUp) return true;
  report_.status.Update(FailedPrecondition(
      "more than {} samples given up, the last one because: {}", kMaxGivenUp, reason));
  return false;
}

}  // namespace neuroshard
