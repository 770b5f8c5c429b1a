#include "server/service/decode_request.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "common/codec/plan_codec.h"
#include "common/codec/request_faults.h"
#include "common/observe/logger.h"
#include "server/search/run_search.h"

namespace neuroshard {
namespace {

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
  RequestFaults faults;
  faults.Add(request.status(), "");
  CheckStrategy(message.search().strategy(), faults.violations);
  NS_RETURN_IF_ERROR(faults.ToStatus());
  if (request->request_id.empty()) request->request_id = MakeRequestId();
  return request;
}

StatusOr<EvaluationRequest> DecodeEvaluationRequest(const v1::EvaluatePlanRequest& message,
                                                    const RequestLimits& limits) {
  RequestFaults faults;
  const bool admitted = CheckShardLimit("plan", message.plan(), limits, faults.over_limits);
  StatusOr<PlanRequest> request = DecodePlanRequest(message.request(), limits);
  faults.Add(request.status(), "request.");
  StatusOr<Plan> plan = admitted ? DecodePlan(message.plan()) : StatusOr<Plan>(Plan());
  faults.Add(plan.status(), "");
  NS_RETURN_IF_ERROR(faults.ToStatus());
  if (request->request_id.empty()) request->request_id = MakeRequestId();
  return EvaluationRequest{*std::move(request), *std::move(plan)};
}

}  // namespace neuroshard
