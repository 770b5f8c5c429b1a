// The parts that the threads of a run share: samples that still have to be measured, a display and
// a stop, waits that a stop ends, and how long failures are retried.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <random>
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
using ComputeAttempt = Attempt<ComputeSample>;

// Thread-safe. Every Take that gives a sample is followed by exactly one Settle or Return of it.
class SampleQueue {
 public:
  explicit SampleQueue(std::vector<ComputeSample> samples) {
    for (ComputeSample& sample : samples) waiting_.push_back({std::move(sample), 0});
  }

  // The next sample. While none waits but some are in flight it blocks, because those may come
  // back. nullopt: everything is settled, or the queue is closed.
  std::optional<ComputeAttempt> Take() {
    MutexLock lock(mutex_);
    while (!closed_ && waiting_.empty() && in_flight_ != 0) lock.Wait(changed_);
    if (closed_ || waiting_.empty()) return std::nullopt;
    ComputeAttempt attempt = std::move(waiting_.front());
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
  void Return(ComputeAttempt attempt) {
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
  std::deque<ComputeAttempt> waiting_ NS_GUARDED_BY(mutex_);
  std::size_t in_flight_ NS_GUARDED_BY(mutex_) = 0;
  bool closed_ NS_GUARDED_BY(mutex_) = false;
};

// Calls every loop in a thread of its own and returns when all have returned. Meanwhile ticks
// `display`, and calls `on_stop` once when `stop` asks for it; the loops must then return soon.
// True when it was stopped.
bool RunMonitored(const std::vector<std::function<void()>>& loops, const StopSignal& stop,
                  ProgressDisplay& display, const std::function<void()>& on_stop);

// Kinds of failures by what the sweep does about them.
enum class FailureKind {
  kConnection,  // the worker, its stream or its group is broken: the sample can be measured
                // elsewhere or later
  kBusy,        // somebody else has the device: wait
  kSample,      // the worker refuses this sample: no worker will take it
};

FailureKind ClassifyFailure(const Status& status);

// Ends a run early: threads wait on it in place of sleeping, so that a stop ends every wait. Once
// stopped, it stays stopped. Thread-safe.
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

  // Waits before the next attempt. False: do not try again, the window has passed or the latch was
  // stopped.
  bool WaitToRetry(StopLatch& latch) {
    if (clock_.Now() - last_success_ >= window_) return false;
    return !latch.WaitFor(backoff_.Next());
  }

 private:
  const Clock& clock_;
  const std::chrono::milliseconds window_;
  Backoff backoff_;
  TimePoint last_success_;
};

// The streams of a run that wait for a record, so that a stop can cancel them all. A stream is
// removed before it is destroyed. Thread-safe.
class OpenStreams {
 public:
  // Cancelled at once when CancelAll came first.
  void Add(ComputeStream* stream) {
    const MutexLock lock(mutex_);
    streams_.push_back(stream);
    if (cancelled_) stream->Cancel();
  }

  void Remove(ComputeStream* stream) {
    const MutexLock lock(mutex_);
    streams_.remove(stream);
  }

  void CancelAll() {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    for (ComputeStream* stream : streams_) stream->Cancel();
  }

 private:
  Mutex mutex_;
  std::list<ComputeStream*> streams_ NS_GUARDED_BY(mutex_);
  bool cancelled_ NS_GUARDED_BY(mutex_) = false;
};

}  // namespace neuroshard
