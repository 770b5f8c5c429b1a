#include "common/rpc/call_budget.h"

#include "common/base/failure_reason.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {

CallBudget::CallBudget(std::int64_t most, std::string what, std::string option, Observer observer)
    : most_(most),
      what_(std::move(what)),
      option_(std::move(option)),
      observer_(std::move(observer)) {
  const MutexLock lock(mutex_);
  Change(0);
}

void CallBudget::Change(std::int64_t by) {
  taken_ += by;
  if (observer_) observer_(taken_, most_);
}

Status CallBudget::Check(std::int64_t amount) const {
  if (taken_ > 0 && taken_ + amount > most_) {
    return WithReason(
        WithRetryAfter(ResourceExhausted("calls in flight take {} {}, this one would take {} more, "
                                         "and {} is this server's limit ({}); try again later",
                                         taken_, what_, amount, most_, option_),
                       kRetryAfter),
        FailureReason::kOverloaded);
  }
  return absl::OkStatus();
}

Status CallBudget::Fits(std::int64_t amount) const {
  const MutexLock lock(mutex_);
  return Check(amount);
}

StatusOr<CallBudget::Share> CallBudget::Take(std::int64_t amount) {
  const MutexLock lock(mutex_);
  NS_RETURN_IF_ERROR(Check(amount));
  Change(amount);
  return Share(this, amount);
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
