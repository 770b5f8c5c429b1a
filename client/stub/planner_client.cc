#include "client/stub/planner_client.h"

#include <utility>

#include "client/stub/call_trace.h"
#include "client/stub/channel.h"
#include "client/stub/retry.h"
#include "common/rpc/deadline.h"
#include "neuroshard/v1/planner.grpc.pb.h"

namespace neuroshard {
namespace {

// gRPC's servers answer CANCELLED, without a word, to calls that arrive while they shut down;
// whoever cancels says why (proto/README.md).
grpc::Status WithoutShutdown(const grpc::Status& status) {
  const std::string& words = status.error_message();
  if (status.error_code() != grpc::StatusCode::CANCELLED ||
      !(words.empty() || words == "CANCELLED"))
    return status;
  return {grpc::StatusCode::UNAVAILABLE, "the server ended the call, as one that stops does"};
}

}  // namespace

class PlannerClient::Impl {
 public:
  Impl(std::string address, CallPolicy policy)
      : address_(std::move(address)),
        policy_(std::move(policy)),
        stub_(v1::PlannerService::NewStub(
            OpenReplicaChannel(address_, policy_.tls, v1::PlannerService::service_full_name()))) {}

  template <typename Request, typename Response>
  StatusOr<Response> Call(grpc::Status (v1::PlannerService::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&,
                                                                           Response*),
                          const Request& request) const {
    Response response;
    NS_RETURN_IF_ERROR(Retry(policy_, [&] {
      grpc::ClientContext context;
      context.set_deadline(DeadlineIn(policy_.deadline));
      AddTrace(context);
      response.Clear();
      const grpc::Status status = (*stub_.*method)(&context, request, &response);
      return CallStatus(WithoutShutdown(status), context, "planner", address_);
    }));
    return response;
  }

  StatusOr<v1::ShardPlanResponse> Stream(
      const v1::ShardPlanRequest& request,
      const std::function<void(const v1::ShardPlanUpdate&)>& on_update) const {
    v1::ShardPlanUpdate update;
    bool received = false;
    Status broken_after_start;
    NS_RETURN_IF_ERROR(Retry(policy_, [&] {
      grpc::ClientContext context;
      context.set_deadline(DeadlineIn(policy_.deadline));
      AddTrace(context);
      const auto reader = stub_->ShardPlanStream(&context, request);
      while (reader->Read(&update)) {
        received = true;
        on_update(update);
      }
      const Status status =
          CallStatus(WithoutShutdown(reader->Finish()), context, "planner", address_);
      if (!received) return status;
      // The caller has seen part of an answer; a second one from the start would contradict it.
      broken_after_start = status;
      return absl::OkStatus();
    }));
    NS_RETURN_IF_ERROR(broken_after_start);
    if (!update.final() || !update.has_best()) {
      return Internal("planner at {}: the stream ended without a final plan", address_);
    }
    return std::move(*update.mutable_best());
  }

 private:
  std::string address_;
  CallPolicy policy_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

PlannerClient::PlannerClient(std::string address, CallPolicy policy)
    : impl_(std::make_unique<Impl>(std::move(address), std::move(policy))) {}
PlannerClient::~PlannerClient() = default;

StatusOr<v1::ShardPlanResponse> PlannerClient::ShardPlan(
    const v1::ShardPlanRequest& request) const {
  return impl_->Call(&v1::PlannerService::Stub::ShardPlan, request);
}

StatusOr<v1::ShardPlanResponse> PlannerClient::ShardPlanStream(
    const v1::ShardPlanRequest& request,
    const std::function<void(const v1::ShardPlanUpdate&)>& on_update) const {
  return impl_->Stream(request, on_update);
}

StatusOr<v1::EvaluatePlanResponse> PlannerClient::EvaluatePlan(
    const v1::EvaluatePlanRequest& request) const {
  return impl_->Call(&v1::PlannerService::Stub::EvaluatePlan, request);
}

StatusOr<v1::PredictComputeResponse> PlannerClient::PredictCompute(
    const v1::PredictComputeRequest& request) const {
  return impl_->Call(&v1::PlannerService::Stub::PredictCompute, request);
}

StatusOr<v1::ListCostModelsResponse> PlannerClient::ListCostModels() const {
  return impl_->Call(&v1::PlannerService::Stub::ListCostModels, v1::ListCostModelsRequest());
}

StatusOr<v1::GetCostModelResponse> PlannerClient::GetCostModel(
    const v1::CostModelRef& model) const {
  v1::GetCostModelRequest request;
  *request.mutable_cost_model() = model;
  return impl_->Call(&v1::PlannerService::Stub::GetCostModel, request);
}

StatusOr<v1::ListDevicesResponse> PlannerClient::ListDevices() const {
  return impl_->Call(&v1::PlannerService::Stub::ListDevices, v1::ListDevicesRequest());
}

StatusOr<v1::ServeModelResponse> PlannerClient::ServeModel(
    const v1::ServeModelRequest& request) const {
  return impl_->Call(&v1::PlannerService::Stub::ServeModel, request);
}

}  // namespace neuroshard
