// CallBudget: the amount of something that the calls in flight may take together. RetryPacer: when
// the callers that a full server refuses should come back.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace neuroshard {

// Told the same delay, refused callers would return together, and what they ask of the server would
// grow with their number. So each gets a time of its own, evenly behind those of the others: the
// delay grows with how many wait, and the server refuses a bounded number of calls a second. The
// distance follows the calls that end, kReturnsPerEnd returns for each, so that what becomes free
// is taken at once. Thread-safe, O(1). `clock` must outlive this.
class RetryPacer {
 public:
  // After this time about half of the searches of a busy server have ended.
  static constexpr std::chrono::milliseconds kShortest{250};
  // Where more callers wait than fit into this time, returns go on from kShortest between those
  // that are expected already. It bounds as well what a caller gains or loses by others that never
  // come back.
  static constexpr std::chrono::milliseconds kLongest{10'000};

  explicit RetryPacer(const Clock& clock);

  // How long the call that is refused now should wait.
  std::chrono::milliseconds Next();
  // A call that was not refused has ended.
  void CallEnded();

 private:
  const Clock& clock_;
  Mutex mutex_;
  TimePoint last_return_ NS_GUARDED_BY(mutex_);
  TimePoint last_end_ NS_GUARDED_BY(mutex_);
  TimePoint::duration between_ends_ NS_GUARDED_BY(mutex_);  // running mean
};

// An amount that calls share. Nobody waits: what does not fit is refused at once. Thread-safe;
// outlives its shares.
class CallBudget {
 public:
  struct Return {
    void operator()(CallBudget* budget) const { budget->GiveBack(amount); }

    std::int64_t amount = 0;
  };
  // Given back on destruction.
  using Share = std::unique_ptr<CallBudget, Return>;

  // Told at first and after each change, with the lock held.
  using Observer = std::function<void(std::int64_t taken, std::int64_t most)>;

  // `what` is counted ("threads of searches"), `option` is where `most` comes from; both are
  // quoted. `pacer` says when refused calls should come back, and outlives this.
  CallBudget(std::int64_t most, std::string what, std::string option, RetryPacer& pacer,
             Observer observer = nullptr);

  // RESOURCE_EXHAUSTED when it does not fit beside the others. Alone, a call may take all, and
  // more.
  StatusOr<Share> Take(std::int64_t amount);
  // Takes so much more for a call that has a share.
  Status Grow(Share& share, std::int64_t by);
  std::int64_t taken() const;
  std::int64_t most() const { return most_; }
  const std::string& option() const { return option_; }

 private:
  // `own`: what the call has already.
  Status Check(std::int64_t amount, std::int64_t own) const NS_REQUIRES(mutex_);
  void GiveBack(std::int64_t amount);
  void Change(std::int64_t by) NS_REQUIRES(mutex_);

  const std::int64_t most_;
  const std::string what_;
  const std::string option_;
  RetryPacer& pacer_;
  const Observer observer_;
  mutable Mutex mutex_;
  std::int64_t taken_ NS_GUARDED_BY(mutex_) = 0;
};

}  // namespace neuroshard
