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

Status CallBudget::TakeMore(std::int64_t own, std::int64_t more) {
  if (taken_ > own && taken_ + more > most_) {
    return WithReason(
        WithRetryAfter(ResourceExhausted("calls in flight take {} {}, this one would take {} more, "
                                         "and {} is this server's limit ({}); try again later",
                                         taken_, what_, more, most_, option_),
                       kRetryAfter),
        FailureReason::kOverloaded);
  }
  Change(more);
  return absl::OkStatus();
}

StatusOr<CallBudget::Share> CallBudget::Take(std::int64_t amount) {
  const MutexLock lock(mutex_);
  NS_RETURN_IF_ERROR(TakeMore(0, amount));
  return Share(this, amount);
}

Status CallBudget::Extend(Share& share, std::int64_t amount) {
  if (amount <= share.amount_) return absl::OkStatus();
  const MutexLock lock(mutex_);
  NS_RETURN_IF_ERROR(TakeMore(share.amount_, amount - share.amount_));
  share.amount_ = amount;
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
