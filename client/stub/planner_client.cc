#include "client/stub/planner_client.h"

#include <utility>
#include <vector>

#include "client/stub/call_trace.h"
#include "client/stub/channel.h"
#include "client/stub/replicas.h"
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
        replicas_(address_, policy_, v1::PlannerService::service_full_name()) {
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      stubs_.push_back(v1::PlannerService::NewStub(replicas_.channel(i)));
    }
  }

  template <typename Request, typename Response>
  StatusOr<Response> Call(grpc::Status (v1::PlannerService::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&,
                                                                           Response*),
                          const Request& request) const {
    Response response;
    NS_RETURN_IF_ERROR(Retry(policy_, [&] {
      return Attempt([&](v1::PlannerService::Stub& stub, grpc::ClientContext& context) {
        response.Clear();
        return (stub.*method)(&context, request, &response);
      });
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
      const Status status = Attempt(
          [&](v1::PlannerService::Stub& stub, grpc::ClientContext& context) {
            const auto reader = stub.ShardPlanStream(&context, request);
            while (reader->Read(&update)) {
              received = true;
              on_update(update);
            }
            return reader->Finish();
          },
          received);
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
  // `call` to the replica whose turn it is, after those that are found to be unusable. A call that
  // `answered` is not repeated.
  template <typename OneCall>
  Status Attempt(const OneCall& call, const bool& answered = false) const {
    for (;;) {
      const Replicas::Turn turn = replicas_.Next();
      grpc::ClientContext context;
      context.set_deadline(DeadlineIn(policy_.deadline));
      AddTrace(context);
      const grpc::Status status = WithoutShutdown(call(*stubs_[turn.replica], context));
      if (!turn.is_untold || answered || status.error_code() != grpc::StatusCode::UNAVAILABLE) {
        return CallStatus(status, context, "planner", address_, policy_.tls);
      }
      replicas_.Tell(Message(
          CallStatus(status, context, "planner", replicas_.address(turn.replica), policy_.tls)));
    }
  }

  std::string address_;
  CallPolicy policy_;
  mutable Replicas replicas_;
  std::vector<std::unique_ptr<v1::PlannerService::Stub>> stubs_;
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
