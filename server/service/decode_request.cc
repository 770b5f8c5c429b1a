#include "server/service/decode_request.h"

#include "common/codec/plan_codec.h"
#include "common/codec/request_faults.h"
#include "common/observe/logger.h"

namespace neuroshard {
StatusOr<PlanRequest> DecodeSearchRequest(const v1::ShardPlanRequest& message,
                                          const RequestLimits& limits) {
  NS_ASSIGN_OR_RETURN(PlanRequest request, DecodePlanRequest(message, limits));
  if (request.request_id.empty()) request.request_id = MakeRequestId();
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
