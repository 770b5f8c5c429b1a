// Conversion of the planner's answers into messages, and of the requests that only the planner has.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/codec/request_codec.h"
#include "common/devices/device_table.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/planner.pb.h"
#include "server/cost/cost_model.h"
#include "server/planner/planner.h"

namespace neuroshard {

// A decoded EvaluatePlanRequest; the plan may break any rule.
struct EvaluationRequest {
  PlanRequest request;
  Plan plan;
};

// Decodes both parts. Faults of both are reported together, with paths "request.tables[0]..." and
// "plan.tables[0]...".
StatusOr<EvaluationRequest> DecodeEvaluationRequest(const v1::EvaluatePlanRequest& message,
                                                    const RequestLimits& limits);

// Returns the RequestFingerprint of the request and the models that priced the answer.
std::string FingerprintOf(const PlanRequest& request, const PlanAnswer& answer);

// Encode an answer; `fingerprint` is FingerprintOf its request and answer.
v1::ShardPlanResponse EncodePlanAnswer(const PlanRequest& request, const PlanAnswer& answer,
                                       const std::string& fingerprint);

v1::EvaluatePlanResponse EncodeEvaluation(const PlanRequest& request, const PlanAnswer& answer);

// Encodes everything but the request_id.
v1::PredictComputeResponse EncodePrediction(const PredictionAnswer& answer);

// Encode a model; `share` is ModelSnapshot::ShareOf.
v1::CostModelSummary EncodeModelSummary(const CostModelInfo& info, bool is_default, double share);

v1::GetCostModelResponse EncodeModel(const CostModelInfo& info, bool is_default, double share);

v1::PublishedDevice EncodePublishedDevice(const PublishedDevice& device);

}  // namespace neuroshard
