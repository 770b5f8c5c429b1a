// PlannerService over gRPC: admits, decodes, derives the stop signal, calls the planner, encodes
// and records. Decides nothing.
#pragma once

#include <chrono>
#include <string>

#include "common/base/clock.h"
#include "common/codec/request_codec.h"
#include "common/observe/logger.h"
#include "common/rpc/rpc_gate.h"
#include "neuroshard/v1/planner.grpc.pb.h"
#include "server/models/model_repository.h"
#include "server/planner/planner.h"
#include "server/service/planner_metrics.h"

namespace neuroshard {

// The parts that the service works with; all outlive it.
struct PlannerServiceParts {
  const Planner& planner;
  const ModelRepository& models;
  RpcGate& gate;
  const Clock& clock;
  const Logger& logger;
  PlannerMetrics& metrics;
  RequestLimits limits;
  std::chrono::milliseconds longest_search;  // afterwards the best plan so far is the answer
};

// Thread-safe, stateless between calls.
class PlannerServiceImpl final : public v1::PlannerService::Service {
 public:
  explicit PlannerServiceImpl(PlannerServiceParts parts) : parts_(parts) {}

  grpc::Status ShardPlan(grpc::ServerContext* context, const v1::ShardPlanRequest* message,
                         v1::ShardPlanResponse* response) override;
  grpc::Status ShardPlanStream(grpc::ServerContext* context, const v1::ShardPlanRequest* message,
                               grpc::ServerWriter<v1::ShardPlanUpdate>* writer) override;
  grpc::Status EvaluatePlan(grpc::ServerContext* context, const v1::EvaluatePlanRequest* message,
                            v1::EvaluatePlanResponse* response) override;
  grpc::Status PredictCompute(grpc::ServerContext* context,
                              const v1::PredictComputeRequest* message,
                              v1::PredictComputeResponse* response) override;
  grpc::Status ListCostModels(grpc::ServerContext* context,
                              const v1::ListCostModelsRequest* message,
                              v1::ListCostModelsResponse* response) override;
  grpc::Status GetCostModel(grpc::ServerContext* context, const v1::GetCostModelRequest* message,
                            v1::GetCostModelResponse* response) override;

 private:
  StatusOr<v1::ShardPlanResponse> MakePlan(const std::string& rpc,
                                           const grpc::ServerContext& context,
                                           const v1::ShardPlanRequest& message,
                                           grpc::ServerWriter<v1::ShardPlanUpdate>* writer);

  const PlannerServiceParts parts_;
};

}  // namespace neuroshard
