// Calls of PlannerService as plain functions, and a cost model as people name it: NAME, or
// NAME/VERSION.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "client/stub/call_policy.h"
#include "common/base/status.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// "NAME" (the version that serves: 0) or "NAME/VERSION". INVALID_ARGUMENT says what is wrong.
StatusOr<CostModelRef> ParseModelReference(const std::string& text);

// The text that ParseModelReference reads as `model`.
std::string ModelReferenceText(const CostModelRef& model);

v1::CostModelRef EncodeModelReference(const CostModelRef& model);

// Thread-safe. `address` is a planner's HOST:PORT, or replicas' HOST:PORT,HOST:PORT,...: each
// address has a channel of its own, and those that are ready take calls in turn. Every call is
// repeatable (plans are pure functions of the request), so UNAVAILABLE is retried with backoff
// within the policy, by another replica where there is one. Errors name the address;
// Violations::FromStatus gives the faulty fields of an INVALID_ARGUMENT.
class PlannerClient {
 public:
  explicit PlannerClient(std::string address, CallPolicy policy = {});
  ~PlannerClient();

  StatusOr<v1::ShardPlanResponse> ShardPlan(const v1::ShardPlanRequest& request) const;

  // Calls on_update for every message, on the calling thread, and returns the final plan. Retried
  // only while nothing was received.
  StatusOr<v1::ShardPlanResponse> ShardPlanStream(
      const v1::ShardPlanRequest& request,
      const std::function<void(const v1::ShardPlanUpdate&)>& on_update) const;

  StatusOr<v1::EvaluatePlanResponse> EvaluatePlan(v1::ShardPlanRequest request,
                                                  v1::Plan plan) const;
  StatusOr<v1::PredictComputeResponse> PredictCompute(
      const v1::PredictComputeRequest& request) const;
  StatusOr<v1::ListCostModelsResponse> ListCostModels() const;
  StatusOr<v1::GetCostModelResponse> GetCostModel(const v1::CostModelRef& model) const;
  StatusOr<v1::ListDevicesResponse> ListDevices() const;
  StatusOr<v1::ServeModelResponse> ServeModel(const v1::ServeModelRequest& request) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace neuroshard
