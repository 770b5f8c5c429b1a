#include "common/rpc/call_budget.h"

#include <algorithm>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;

constexpr int kReturnsPerEnd = 4;
// The share of the newest end in the running mean is one in this many.
constexpr int kEndsInMean = 8;
// The time between ends that is reckoned with. Shorter, refusals would cost more than they tell;
// longer is also a server that was idle. With kReturnsPerEnd: 50 to 1,000 returns a second.
constexpr milliseconds kMinBetweenEnds{4};
constexpr milliseconds kMaxBetweenEnds{80};

}  // namespace

RetryPacer::RetryPacer(const Clock& clock) : clock_(clock), between_ends_(kMaxBetweenEnds) {}

milliseconds RetryPacer::Next() {
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.Now();
  const TimePoint earliest = now + kShortest;
  last_return_ = std::max(last_return_ + between_ends_ / kReturnsPerEnd, earliest);
  if (last_return_ > now + kLongest) last_return_ = earliest;
  return std::chrono::round<milliseconds>(last_return_ - now);
}

void RetryPacer::CallEnded() {
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.Now();
  const auto between =
      std::clamp<TimePoint::duration>(now - last_end_, kMinBetweenEnds, kMaxBetweenEnds);
  between_ends_ += (between - between_ends_) / kEndsInMean;
  last_end_ = now;
}

CallBudget::CallBudget(std::int64_t most, std::string what, std::string option, RetryPacer& pacer,
                       Observer observer)
    : most_(most),
      what_(std::move(what)),
      option_(std::move(option)),
      pacer_(pacer),
      observer_(std::move(observer)) {
  const MutexLock lock(mutex_);
  Change(0);
}

void CallBudget::Change(std::int64_t by) {
  taken_ += by;
  if (observer_) observer_(taken_, most_);
}

Status CallBudget::Check(std::int64_t amount, std::int64_t own) const {
  if (taken_ > own && taken_ + amount > most_) {
    return WithReason(
        WithRetryAfter(ResourceExhausted("calls in flight take {} {}, this one would take {} more, "
                                         "and {} is this server's limit ({}); try again later",
                                         taken_, what_, amount, most_, option_),
                       pacer_.Next()),
        FailureReason::kOverloaded);
  }
  return absl::OkStatus();
}

StatusOr<CallBudget::Share> CallBudget::Take(std::int64_t amount) {
  const MutexLock lock(mutex_);
  NS_RETURN_IF_ERROR(Check(amount, 0));
  Change(amount);
  return Share(this, {amount});
}

Status CallBudget::Grow(Share& share, std::int64_t by) {
  const MutexLock lock(mutex_);
  NS_RETURN_IF_ERROR(Check(by, share.get_deleter().amount));
  Change(by);
  share.get_deleter().amount += by;
  return absl::OkStatus();
}

std::int64_t CallBudget::taken() const {
  const MutexLock lock(mutex_);
  return taken_;
}

void CallBudget::GiveBack(std::int64_t amount) {
  const MutexLock lock(mutex_);
  Change(-amount);
}

}  // namespace neuroshard
