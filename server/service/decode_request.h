// Decoding of requests, with every fault that can be found before any work is done.
#pragma once

#include "common/base/status.h"
#include "common/codec/request_codec.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// A decoded EvaluatePlanRequest; the plan may break any rule.
struct EvaluationRequest {
  PlanRequest request;
  Plan plan;
};

// Faults of both parts together, with paths "request.tables[0]..." and "plan.tables[0]...".
StatusOr<EvaluationRequest> DecodeEvaluationRequest(const v1::EvaluatePlanRequest& message,
                                                    const RequestLimits& limits);

}  // namespace neuroshard
