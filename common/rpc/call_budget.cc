#include "common/rpc/call_budget.h"

#include "common/base/failure_reason.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {

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
  return Share(this, amount);
}

Status CallBudget::Grow(Share& share, std::int64_t by) {
  const MutexLock lock(mutex_);
  NS_RETURN_IF_ERROR(Check(by, share.amount_));
  Change(by);
  share.amount_ += by;
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
