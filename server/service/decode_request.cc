#include "server/service/decode_request.h"

#include "common/codec/plan_codec.h"
#include "common/codec/request_faults.h"

namespace neuroshard {
StatusOr<EvaluationRequest> DecodeEvaluationRequest(const v1::EvaluatePlanRequest& message,
                                                    const RequestLimits& limits) {
  RequestFaults faults;
  const bool admitted = CheckShardLimit("plan", message.plan(), limits, faults.over_limits);
  StatusOr<PlanRequest> request = DecodePlanRequest(message.request(), limits);
  faults.Add(request.status(), "request.");
  StatusOr<Plan> plan = admitted ? DecodePlan(message.plan()) : StatusOr<Plan>(Plan());
  faults.Add(plan.status(), "");
  NS_RETURN_IF_ERROR(faults.ToStatus());
  return EvaluationRequest{*std::move(request), *std::move(plan)};
}

}  // namespace neuroshard
