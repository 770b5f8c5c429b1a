// Counts and first fault of a run, shared by its threads.
#pragma once

#include <string>
#include <utility>

#include "client/sweep/sweep_run.h"
#include "common/base/mutex.h"

namespace neuroshard {

// Thread-safe.
class SweepTally {
 public:
  SweepTally(ProgressDisplay& display, int max_given_up)
      : display_(display), max_given_up_(max_given_up) {}

  void Recorded(bool out_of_memory) {
    {
      const MutexLock lock(mutex_);
      ++report_.recorded;
      if (out_of_memory) ++report_.out_of_memory;
    }
    display_.Add(out_of_memory);
  }

  // Another client on the same sweep was first.
  void RecordedElsewhere() { display_.Add(false); }

  // False when too many are given up; the run then has its fault.
  bool GiveUp(const std::string& sample_id, const std::string& reason) {
    display_.Note(fmt::format("sample {} given up: {}", sample_id, reason));
    const MutexLock lock(mutex_);
    report_.given_up.push_back({sample_id, reason});
    if (static_cast<int>(report_.given_up.size()) <= max_given_up_) return true;
    SetFault(FailedPrecondition("more than {} samples given up, the last one because: {}",
                                max_given_up_, reason));
    return false;
  }

  void Lost(LostWorker lost) {
    const MutexLock lock(mutex_);
    report_.lost.push_back(std::move(lost));
  }

  // The first fault stays.
  void Fail(const Status& status) {
    const MutexLock lock(mutex_);
    SetFault(status);
  }

  SweepReport report() const {
    const MutexLock lock(mutex_);
    return report_;
  }

 private:
  void SetFault(const Status& status) NS_REQUIRES(mutex_) {
    if (report_.status.ok()) report_.status = status;
  }

  ProgressDisplay& display_;
  const int max_given_up_;
  mutable Mutex mutex_;
  SweepReport report_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
