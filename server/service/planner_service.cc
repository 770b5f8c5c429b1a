#include "server/service/planner_service.h"

#include <optional>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/codec/fingerprint.h"
#include "common/codec/prediction_codec.h"
#include "common/rpc/call_stop.h"
#include "server/service/decode_request.h"
#include "server/service/plan_stream.h"
#include "server/service/planner_messages.h"

namespace neuroshard {
namespace {

// A search that was stopped before its first plan says DEADLINE_EXCEEDED, whatever stopped it.
Status ExplainStop(const Status& status, const CallStop& stop, const RpcGate& gate) {
  if (!absl::IsDeadlineExceeded(status) || stop.deadline_reached()) return status;
  if (stop.cancelled()) return absl::CancelledError("cancelled by the caller");
  if (gate.draining().ShouldStop()) {
    return WithReason(
        Unavailable("the server is draining and had no answer yet; try another replica"),
        FailureReason::kDraining);
  }
  return status;
}

void LogFailure(const Logger& logger, const std::string& rpc, const std::string& request_id,
                const Status& status) {
  const Logger::Fields fields = {{"rpc", rpc},
                                 {"request_id", request_id},
                                 {"code", absl::StatusCodeToString(status.code())},
                                 {"message", Message(status)}};
  absl::IsInternal(status) ? logger.Error("call_failed", fields)
                           : logger.Info("call_failed", fields);
}

bool IsDefault(const ModelSnapshot& snapshot, const CostModel& model) {
  const auto found = snapshot.Find({});
  return found.ok() && found->get() == &model;
}

}  // namespace

StatusOr<v1::ShardPlanResponse> PlannerServiceImpl::MakePlan(
    const std::string& rpc, const grpc::ServerContext& context, const v1::ShardPlanRequest& message,
    grpc::ServerWriter<v1::ShardPlanUpdate>* writer) {
  auto request = DecodeSearchRequest(message, parts_.limits);
  if (!request.ok()) {
    LogFailure(parts_.logger, rpc, message.request_id(), request.status());
    return request.status();
  }
  const CallStop stop(context, parts_.gate.draining(), parts_.clock, parts_.longest_search);
  std::optional<PlanStream> stream;
  if (writer != nullptr) stream.emplace(*request, parts_.clock, *writer);
  const auto answer =
      parts_.planner.MakePlan(*request, stop, stream.has_value() ? &*stream : nullptr);
  if (!answer.ok()) {
    if (absl::IsInternal(answer.status())) parts_.metrics.PlanRejected();
    const Status status = ExplainStop(answer.status(), stop, parts_.gate);
    LogFailure(parts_.logger, rpc, request->request_id, status);
    return status;
  }
  parts_.metrics.PlanMade(answer->statistics, answer->search_ms);
  parts_.logger.Info("plan_made", {{"rpc", rpc},
                                   {"request_id", request->request_id},
                                   {"model", answer->model.name},
                                   {"version", answer->model.version},
                                   {"strategy", answer->statistics.strategy},
                                   {"tables", request->tables.size()},
                                   {"ranks", request->topology.num_ranks()},
                                   {"cost_ms", answer->cost.embedding_cost_ms},
                                   {"search_ms", answer->search_ms},
                                   {"time_limit_reached", answer->statistics.time_limit_reached},
                                   {"cancelled", stop.cancelled()}});
  return EncodePlanAnswer(*request, *answer,
                          RequestFingerprint(*request, answer->model.name, answer->model.version));
}

grpc::Status PlannerServiceImpl::ShardPlan(grpc::ServerContext* context,
                                           const v1::ShardPlanRequest* message,
                                           v1::ShardPlanResponse* response) {
  return parts_.gate.Serve("ShardPlan", [&]() -> Status {
    NS_ASSIGN_OR_RETURN(*response, MakePlan("ShardPlan", *context, *message, nullptr));
    return absl::OkStatus();
  });
}

grpc::Status PlannerServiceImpl::ShardPlanStream(grpc::ServerContext* context,
                                                 const v1::ShardPlanRequest* message,
                                                 grpc::ServerWriter<v1::ShardPlanUpdate>* writer) {
  return parts_.gate.Serve("ShardPlanStream", [&]() -> Status {
    v1::ShardPlanUpdate last;
    NS_ASSIGN_OR_RETURN(*last.mutable_best(),
                        MakePlan("ShardPlanStream", *context, *message, writer));
    last.set_progress(1);
    last.set_best_cost_ms(last.best().cost().embedding_cost_ms());
    last.set_final(true);
    writer->Write(last);
    return absl::OkStatus();
  });
}

grpc::Status PlannerServiceImpl::EvaluatePlan(grpc::ServerContext*,
                                              const v1::EvaluatePlanRequest* message,
                                              v1::EvaluatePlanResponse* response) {
  return parts_.gate.Serve("EvaluatePlan", [&]() -> Status {
    const auto decoded = DecodeEvaluationRequest(*message, parts_.limits);
    const auto answer = decoded.ok() ? parts_.planner.EvaluatePlan(decoded->request, decoded->plan)
                                     : StatusOr<EvaluationAnswer>(decoded.status());
    if (!answer.ok()) {
      LogFailure(parts_.logger, "EvaluatePlan", message->request().request_id(), answer.status());
      return answer.status();
    }
    parts_.logger.Info("plan_evaluated", {{"rpc", "EvaluatePlan"},
                                          {"request_id", decoded->request.request_id},
                                          {"model", answer->model.name},
                                          {"version", answer->model.version},
                                          {"violations", answer->violations.size()}});
    *response = EncodeEvaluation(*answer);
    return absl::OkStatus();
  });
}

grpc::Status PlannerServiceImpl::PredictCompute(grpc::ServerContext* context,
                                                const v1::PredictComputeRequest* message,
                                                v1::PredictComputeResponse* response) {
  return parts_.gate.Serve("PredictCompute", [&]() -> Status {
    const auto request = DecodePredictionRequest(*message, parts_.limits);
    const CallStop stop(*context, parts_.gate.draining(), parts_.clock, parts_.longest_search);
    const auto answer = request.ok()
                            ? parts_.planner.Predict(request->cost_model, request->sets, stop)
                            : StatusOr<PredictionAnswer>(request.status());
    if (!answer.ok()) {
      const Status status = ExplainStop(answer.status(), stop, parts_.gate);
      LogFailure(parts_.logger, "PredictCompute", message->request_id(), status);
      return status;
    }
    *response = EncodePrediction(*answer);
    response->set_request_id(request->request_id.empty() ? MakeRequestId() : request->request_id);
    parts_.logger.Info("compute_predicted", {{"rpc", "PredictCompute"},
                                             {"request_id", response->request_id()},
                                             {"model", answer->model.name},
                                             {"version", answer->model.version},
                                             {"sets", request->sets.size()}});
    return absl::OkStatus();
  });
}

grpc::Status PlannerServiceImpl::ListCostModels(grpc::ServerContext*,
                                                const v1::ListCostModelsRequest*,
                                                v1::ListCostModelsResponse* response) {
  return parts_.gate.Serve("ListCostModels", [&]() -> Status {
    const auto snapshot = parts_.models.Current();
    for (const auto& model : snapshot->models()) {
      *response->add_models() = EncodeModelSummary(model->info(), IsDefault(*snapshot, *model));
    }
    for (const RefusedModel& refused : snapshot->refused()) {
      v1::RefusedCostModel& entry = *response->add_refused();
      entry.set_path(refused.directory);
      entry.set_reason(refused.reason);
    }
    return absl::OkStatus();
  });
}

grpc::Status PlannerServiceImpl::GetCostModel(grpc::ServerContext*,
                                              const v1::GetCostModelRequest* message,
                                              v1::GetCostModelResponse* response) {
  return parts_.gate.Serve("GetCostModel", [&]() -> Status {
    const auto snapshot = parts_.models.Current();
    const v1::CostModelRef& ref = message->cost_model();
    NS_ASSIGN_OR_RETURN(const auto model, snapshot->Find({ref.name(), ref.version()}));
    *response = EncodeModel(model->info(), IsDefault(*snapshot, *model));
    return absl::OkStatus();
  });
}

}  // namespace neuroshard
