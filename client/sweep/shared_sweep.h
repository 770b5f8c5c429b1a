// What the threads of a run share, whatever the kind of its samples: those that still have to be
// measured, a display and a stop, waits that a stop ends, how long failures are retried, and what
// came of it all.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "client/stub/call_policy.h"
#include "client/stub/worker_client.h"
#include "client/sweep/sweep_run.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/cli/progress_display.h"
#include "common/domain/measurement.h"

namespace neuroshard {

// A sample on its way, with how often it failed so far.
template <typename Sample>
struct Attempt {
  Sample sample;
  int failures = 0;

  bool operator==(const Attempt&) const = default;
};

// Thread-safe. Every Take that gives a sample is followed by exactly one Settle or Return of it.
template <typename Sample>
class SampleQueue {
 public:
  explicit SampleQueue(std::vector<Sample> samples) {
    for (Sample& sample : samples) waiting_.push_back({std::move(sample), 0});
  }

  // The next sample. While none waits but some are in flight it blocks, because those may come
  // back. nullopt: everything is settled, or the queue is closed.
  std::optional<Attempt<Sample>> Take() {
    MutexLock lock(mutex_);
    while (!closed_ && waiting_.empty() && in_flight_ != 0) lock.Wait(changed_);
    if (closed_ || waiting_.empty()) return std::nullopt;
    Attempt<Sample> attempt = std::move(waiting_.front());
    waiting_.pop_front();
    ++in_flight_;
    return attempt;
  }

  // A taken sample is recorded, or given up for good.
  void Settle() {
    const MutexLock lock(mutex_);
    --in_flight_;
    changed_.notify_all();
  }

  // A taken sample could not be measured here; it goes to the back, so that one bad sample does not
  // hold up the others.
  void Return(Attempt<Sample> attempt) {
    const MutexLock lock(mutex_);
    --in_flight_;
    waiting_.push_back(std::move(attempt));
    changed_.notify_all();
  }

  // From now on nothing is handed out.
  void Close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  // Waiting or in flight.
  std::size_t unsettled() const {
    const MutexLock lock(mutex_);
    return waiting_.size() + in_flight_;
  }

 private:
  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Attempt<Sample>> waiting_ NS_GUARDED_BY(mutex_);
  std::size_t in_flight_ NS_GUARDED_BY(mutex_) = 0;
  bool closed_ NS_GUARDED_BY(mutex_) = false;
};

// Calls every loop in a thread of its own and returns when all have returned. Meanwhile ticks
// `display`, and calls `on_stop` once when `stop` asks for it; the loops must then return soon.
// True when it was stopped.
bool RunMonitored(const std::vector<std::function<void()>>& loops, const StopSignal& stop,
                  ProgressDisplay& display, const std::function<void()>& on_stop);

// Failures are retried with growing waits, for a bounded time since the last success. One thread.
class RetryWindow {
 public:
  explicit RetryWindow(const SweepRun& run)
      : clock_(run.clock),
        window_(run.fleet.reconnect_window),
        backoff_(run.fleet.first_backoff, run.fleet.longest_backoff, std::random_device{}()),
        last_success_(clock_.Now()) {}

  void Success() {
    last_success_ = clock_.Now();
    backoff_.Reset();
  }

  // Waits before the next attempt, or until `stop`. False: do not try again, the window has passed
  // or the run is stopped.
  bool WaitToRetry(const std::stop_token& stop) {
    if (clock_.Now() - last_success_ >= window_) return false;
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock<std::mutex> lock(mutex);
    stopped.wait_for(lock, stop, backoff_.Next(), [] { return false; });
    return !stop.stop_requested();
  }

 private:
  const Clock& clock_;
  const std::chrono::milliseconds window_;
  Backoff backoff_;
  TimePoint last_success_;
};

// What the store says of the record of a sample.
struct StoredRecord {
  Status status;
  bool out_of_memory = false;
};

// Measures samples one at a time: on a stream to a device, or in a group of ranks. It is opened
// before the first, and closed and opened again after a failure. One thread.
template <typename Sample>
class SampleRunner {
 public:
  virtual ~SampleRunner() = default;

  // "device 3", in notes.
  virtual std::string name() const = 0;
  virtual Status Open() = 0;
  // Whether Open failed for good.
  virtual bool is_hopeless() const { return false; }
  // Writes the record to the store; fails where there is none.
  virtual StatusOr<StoredRecord> Measure(const Sample& sample) = 0;
  // Called after every Open, also where it or Measure failed.
  virtual void Close() = 0;
};

// The workers of a run, what came of its samples, and its early end. Thread-safe.
class SharedSweep {
 public:
  explicit SharedSweep(const SweepRun& run);

  const std::vector<std::unique_ptr<WorkerClient>>& workers() const { return workers_; }
  // To be stopped where nobody need wait for workers that are away.
  std::stop_source& waits() { return waits_; }
  // After Stop, and once waits() were ended because all is measured.
  bool stopped() const { return waits_.stop_requested(); }

  // Ends all calls and waits.
  void Stop();
  void Lost(LostWorker lost);
  // The first fault stays.
  void Fail(const Status& status);
  SweepReport report() const;

  // Measures what the queue hands out. OK when it hands out no more; otherwise the last failure of
  // `runner`: the run was stopped, the runner is hopeless, or nothing worked for the reconnect
  // window.
  template <typename Sample>
  Status MeasureAll(SampleRunner<Sample>& runner, SampleQueue<Sample>& queue) {
    RetryWindow retries(run_);
    bool reported = false;  // a fault is told once, until something works again
    while (true) {
      Status status = runner.Open();
      const bool opened = status.ok();
      if (opened) status = MeasureUntilBroken(runner, queue, retries, reported);
      runner.Close();
      if (status.ok() || (opened && queue.unsettled() == 0)) return absl::OkStatus();
      if (stopped() || runner.is_hopeless()) return status;
      if (!reported) {
        run_.display.Note(fmt::format("{}: {}; trying again", runner.name(), Message(status)));
      }
      reported = true;
      if (!retries.WaitToRetry(waits_.get_token())) return status;
    }
  }

 private:
  // A sample that broke this many streams or groups is given up in this run: it may be what kills
  // the workers.
  static constexpr int kMaxFailuresPerSample = 5;

  template <typename Sample>
  Status MeasureUntilBroken(SampleRunner<Sample>& runner, SampleQueue<Sample>& queue,
                            RetryWindow& retries, bool& reported) {
    while (std::optional<Attempt<Sample>> attempt = queue.Take()) {
      const StatusOr<StoredRecord> record = runner.Measure(attempt->sample);
      if (!record.ok()) {
        HandleFailure(*std::move(attempt), record.status(), queue, retries);
        return record.status();
      }
      queue.Settle();
      if (!Record(*record)) {
        queue.Close();
        Stop();
        return record->status;
      }
      retries.Success();
      reported = false;
    }
    return absl::OkStatus();
  }

  // A sample that fails where others do not is given up; the others are measured elsewhere or
  // later.
  template <typename Sample>
  void HandleFailure(Attempt<Sample> attempt, const Status& status, SampleQueue<Sample>& queue,
                     RetryWindow& retries) {
    const bool refused = IsRefusal(status);
    // No sample is to blame for a device that somebody else has.
    if (!refused && !absl::IsResourceExhausted(status) && !stopped()) ++attempt.failures;
    if (!refused && attempt.failures < kMaxFailuresPerSample) {
      return queue.Return(std::move(attempt));
    }
    const bool go_on = GiveUp(attempt.sample.sample_id, Message(status));
    queue.Settle();
    if (refused) retries.Success();  // the worker did answer
    if (go_on) return;
    queue.Close();
    Stop();
  }

  // Whether the worker refuses the sample, as any would.
  static bool IsRefusal(const Status& status);
  // True: the sample has a record, by this run, or by another client on the same sweep that was
  // first.
  bool Record(const StoredRecord& stored);
  // False when too many are given up; the run then has its fault.
  bool GiveUp(const std::string& sample_id, const std::string& reason);

  const SweepRun& run_;
  std::stop_source waits_;
  std::vector<std::unique_ptr<WorkerClient>> workers_;
  mutable Mutex mutex_;
  SweepReport report_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
