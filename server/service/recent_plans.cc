#include "server/service/recent_plans.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/clock.h"
#include "common/base/printable_text.h"

namespace neuroshard {
namespace {

constexpr std::size_t kShownBytes = 200;

}  // namespace

void RecentPlans::Add(const CallIdentity& identity, const v1::ShardPlanRequest& request,
                      const StatusOr<v1::ShardPlanResponse>& answer) {
  v1::RecentPlan plan;
  plan.set_ended_unix_ms(UnixMillisecondsNow());
  plan.set_caller(Printable(identity.caller, kShownBytes));
  plan.set_request_id(Printable(identity.request_id, kShownBytes));
  plan.set_tables(request.tables_size());
  if (!answer.ok()) {
    plan.set_status(fmt::format("{}: {}", absl::StatusCodeToString(answer.status().code()),
                                Printable(Message(answer.status()), kShownBytes)));
  } else {
    plan.set_status("OK");
    plan.set_ranks(answer->plan().world_size());
    plan.set_strategy(answer->search().strategy());
    plan.set_model(
        fmt::format("{}/{}", answer->cost_model().name(), answer->cost_model().version()));
    plan.set_cost_ms(answer->cost().embedding_cost_ms());
    if (answer->has_lower_bound()) plan.set_lower_bound_ms(answer->lower_bound().cost_ms());
    plan.set_search_ms(answer->search().search_ms());
  }
  const MutexLock lock(mutex_);
  plans_.push_front(std::move(plan));
  if (plans_.size() > kMaxPlans) plans_.pop_back();
}

void RecentPlans::AppendTo(v1::PlannerStatus& status) const {
  const MutexLock lock(mutex_);
  status.mutable_recent_plans()->Add(plans_.begin(), plans_.end());
}

}  // namespace neuroshard
