// The time budget of a search: it bounds the optimisation after the first legal plan.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>

#include "common/base/clock.h"
#include "common/base/stop_signal.h"

namespace neuroshard {

// Stops when `outer` does, or when the budget has passed since Start. Before Start, and without a
// budget, only `outer` counts. HasTimeLeft is true until the budget has passed since the
// construction. `outer` and `clock` must outlive it. Thread-safe.
class BudgetStop final : public StopSignal {
 public:
  BudgetStop(const StopSignal& outer, const Clock& clock,
             std::optional<std::chrono::milliseconds> budget)
      : outer_(outer), clock_(clock), budget_(budget), begin_(clock.Now()) {}

  // Starts the budget when there is a first plan. Later calls change nothing.
  void Start() {
    if (!budget_.has_value() || started_.exchange(true)) return;
    stop_at_.store((clock_.Now() + *budget_).time_since_epoch(), std::memory_order_release);
  }

  bool ShouldStop() const override {
    const auto stop_at = stop_at_.load(std::memory_order_acquire);
    if (stop_at != kNever && clock_.Now().time_since_epoch() >= stop_at) return true;
    return outer_.ShouldStop();
  }

  bool HasTimeLeft() const override {
    return budget_.has_value() && clock_.Now() - begin_ < *budget_ && !outer_.ShouldStop();
  }

  // Share of the budget that has passed since Start, [0, 1]; 0 before it and without a budget.
  double spent() const {
    const auto stop_at = stop_at_.load(std::memory_order_acquire);
    if (stop_at == kNever) return 0;
    if (budget_->count() == 0) return 1;
    const std::chrono::duration<double> left = stop_at - clock_.Now().time_since_epoch();
    return std::clamp(1 - left / *budget_, 0.0, 1.0);
  }

 private:
  static constexpr TimePoint::duration kNever = TimePoint::duration::max();

  const StopSignal& outer_;
  const Clock& clock_;
  const std::optional<std::chrono::milliseconds> budget_;
  const TimePoint begin_;
  std::atomic<bool> started_{false};
  std::atomic<TimePoint::duration> stop_at_{kNever};
};

}  // namespace neuroshard
