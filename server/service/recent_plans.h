// The latest calls for plans, for the planner's status page.
#pragma once

#include <cstddef>
#include <deque>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/rpc/callers.h"
#include "neuroshard/v1/planner.pb.h"
#include "neuroshard/v1/status.pb.h"

namespace neuroshard {

// List of the latest calls. Each takes some hundred bytes, whatever callers send. Thread-safe.
class RecentPlans {
 public:
  static constexpr std::size_t kMaxPlans = 20;

  // Adds a call that ended now with `answer`.
  void Add(const CallIdentity& identity, const v1::ShardPlanRequest& request,
           const StatusOr<v1::ShardPlanResponse>& answer);
  // Appends the calls, the last one first.
  void AppendTo(v1::PlannerStatus& status) const;

 private:
  mutable Mutex mutex_;
  std::deque<v1::RecentPlan> plans_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
