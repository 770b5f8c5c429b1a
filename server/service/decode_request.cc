#include "server/service/decode_request.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "common/codec/plan_codec.h"
#include "common/observe/logger.h"
#include "server/search/run_search.h"

namespace neuroshard {
namespace {

// Whether `status` is about fields, so that more of them may be added.
bool ListsFields(const Status& status) { return !Violations::FromStatus(status).empty(); }

void AddAll(const Status& status, const std::string& prefix, Violations& violations) {
  for (const Violation& violation : Violations::FromStatus(status)) {
    violations.Add(prefix + violation.field, violation.description);
  }
}

void CheckStrategy(const std::string& strategy, Violations& violations) {
  const std::vector<std::string> known = StrategyNames();
  if (strategy.empty() || std::find(known.begin(), known.end(), strategy) != known.end()) return;
  violations.Add("search.strategy", fmt::format("must be one of {}, got {}", fmt::join(known, ", "),
                                                Quoted(strategy)));
}

}  // namespace

StatusOr<PlanRequest> DecodeSearchRequest(const v1::ShardPlanRequest& message,
                                          const RequestLimits& limits) {
  StatusOr<PlanRequest> request = DecodePlanRequest(message, limits);
  Violations violations;
  if (!request.ok()) {
    if (!ListsFields(request.status())) return request;
    AddAll(request.status(), "", violations);
  }
  CheckStrategy(message.search().strategy(), violations);
  NS_RETURN_IF_ERROR(violations.ToStatus());
  if (request->request_id.empty()) request->request_id = MakeRequestId();
  return request;
}

StatusOr<EvaluationRequest> DecodeEvaluationRequest(const v1::EvaluatePlanRequest& message,
                                                    const RequestLimits& limits) {
  NS_RETURN_IF_ERROR(CheckShardLimit("plan", message.plan(), limits));
  StatusOr<PlanRequest> request = DecodePlanRequest(message.request(), limits);
  if (!request.ok() && !ListsFields(request.status())) return request.status();
  StatusOr<Plan> plan = DecodePlan(message.plan());
  if (!plan.ok() && !ListsFields(plan.status())) return plan.status();
  Violations violations;
  AddAll(request.status(), "request.", violations);
  AddAll(plan.status(), "", violations);
  NS_RETURN_IF_ERROR(violations.ToStatus());
  if (request->request_id.empty()) request->request_id = MakeRequestId();
  return EvaluationRequest{*std::move(request), *std::move(plan)};
}

}  // namespace neuroshard
