// Samples that still have to be measured, handed out to whoever is free.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/domain/measurement.h"

namespace neuroshard {

// A sample on its way, with how often it failed so far.
struct ComputeAttempt {
  ComputeSample sample;
  int failures = 0;

  bool operator==(const ComputeAttempt&) const = default;
};

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

  // Nothing is handed out any more.
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

}  // namespace neuroshard
