#include "client/stub/planner_client.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "client/stub/channel.h"
#include "common/base/mutex.h"
#include "common/base/number_text.h"
#include "common/base/text_lines.h"
#include "common/rpc/deadline.h"
#include "neuroshard/v1/planner.grpc.pb.h"

namespace neuroshard {

StatusOr<CostModelRef> ParseModelReference(const std::string& text) {
  const std::size_t slash = text.find('/');
  CostModelRef model{text.substr(0, slash), 0};
  if (model.name.empty()) return InvalidArgument("a model has a name, got \"{}\"", text);
  if (slash == std::string::npos) return model;
  model.version = NumberOf<int>(std::string_view(text).substr(slash + 1)).value_or(0);
  if (model.version >= 1) return model;
  return InvalidArgument("a model is NAME or NAME/VERSION, got \"{}\"", text);
}

std::string ModelReferenceText(const CostModelRef& model) {
  return model.version == 0 ? model.name : fmt::format("{}/{}", model.name, model.version);
}

v1::CostModelRef EncodeModelReference(const CostModelRef& model) {
  v1::CostModelRef message;
  message.set_name(model.name);
  if (model.version != 0) message.set_version(model.version);
  return message;
}

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The first call waits no longer than this until it is known which replicas can be used.
constexpr milliseconds kMaxFirstWait{1'000};
// Channels tell of one change of one state; several are looked at as often as this.
constexpr milliseconds kStatePollInterval{5};

bool IsBroken(grpc_connectivity_state state) {
  return state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN;
}

bool Connects(grpc_connectivity_state state) {
  return state != GRPC_CHANNEL_READY && !IsBroken(state);
}

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

// The replicas of a planner, and which of them takes a call. Each address of a list has a channel
// of its own: gRPC checks the certificates of all addresses of one channel against one name.
class PlannerClient::Impl {
 public:
  Impl(std::string address, CallPolicy policy)
      : address_(std::move(address)), policy_(std::move(policy)), next_(std::random_device{}()) {
    const bool is_list = address_.find(',') != std::string::npos;
    // Whose health says whether a replica is ready.
    const std::string service = is_list ? v1::PlannerService::service_full_name() : "";
    for (const std::string_view one : SplitText(address_, ',')) {
      Replica& replica = replicas_.emplace_back();
      replica.address = one;
      replica.channel = OpenReplicaChannel(replica.address, policy_.tls, service);
      replica.stub = v1::PlannerService::NewStub(replica.channel);
    }
  }

  template <typename Request, typename Response>
  StatusOr<Response> Call(grpc::Status (v1::PlannerService::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&,
                                                                           Response*),
                          const Request& request) {
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
      const std::function<void(const v1::ShardPlanUpdate&)>& on_update) {
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
  struct Replica {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::PlannerService::Stub> stub;
    bool told = false;       // that it cannot be used
    bool was_ready = false;  // may connect again without a word
  };

  // Whose turn it is.
  struct Turn {
    Replica& replica;
    // The replica cannot be used, which nobody was told before: a call to it fails at once with
    // the reason.
    bool is_untold = false;
  };

  // `call` to the replica whose turn it is, after those that are found to be unusable. A call that
  // `answered` is not repeated.
  template <typename OneCall>
  Status Attempt(const OneCall& call, const bool& answered = false) {
    for (;;) {
      const Turn turn = Next();
      grpc::ClientContext context;
      context.set_deadline(DeadlineIn(policy_.deadline));
      AddTrace(context);
      const grpc::Status status = WithoutShutdown(call(*turn.replica.stub, context));
      if (!turn.is_untold || answered || status.error_code() != grpc::StatusCode::UNAVAILABLE) {
        return CallStatus(status, context, "planner", address_, policy_.tls);
      }
      Tell(Message(CallStatus(status, context, "planner", turn.replica.address, policy_.tls)));
    }
  }

  // The replica for the next call: in turn those that are ready. First, once for each, those that
  // are found not to be; the first call waits up to a second until all are known, and those that
  // have not connected by then are told of. Where none is ready, waits up to the policy's deadline
  // for those that connect.
  Turn Next() {
    if (replicas_.size() == 1) return {replicas_.front()};
    const steady_clock::time_point give_up = steady_clock::now() + policy_.deadline;
    for (;;) {
      const std::vector<grpc_connectivity_state> states =
          Mapped(replicas_, [](const Replica& replica) { return replica.channel->GetState(true); });
      const auto connecting = std::ranges::find_if(states, Connects);
      const bool any_ready = std::ranges::find(states, GRPC_CHANNEL_READY) != states.end();
      const auto now = steady_clock::now();
      if (connecting == states.end() || (any_ready && now - made_ >= kMaxFirstWait) ||
          now >= give_up) {
        const MutexLock lock(mutex_);
        for (std::size_t i = 0; i < states.size(); ++i) {
          Replica& replica = replicas_[i];
          if (states[i] == GRPC_CHANNEL_READY) replica.was_ready = true;
          if (replica.told || (replica.was_ready && !IsBroken(states[i]))) continue;
          replica.told = true;
          if (IsBroken(states[i])) return {replica, true};
          Tell(fmt::format("planner at {}: no connection after {} s", replica.address,
                           kMaxFirstWait / std::chrono::seconds(1)));
        }
        for (std::size_t i = 0; i < states.size(); ++i) {
          const std::size_t turn = next_++ % states.size();
          if (!any_ready || states[turn] == GRPC_CHANNEL_READY) return {replicas_[turn]};
        }
      }
      replicas_[static_cast<std::size_t>(connecting - states.begin())].channel->WaitForStateChange(
          *connecting, DeadlineIn(kStatePollInterval));
    }
  }

  // Tells the policy's `warn` why a replica cannot be used: "planner at HOST:PORT: ...".
  void Tell(const std::string& why) const {
    policy_.warn(why + "; calls go to the others of " + address_);
  }

  const std::string address_;
  const CallPolicy policy_;
  const steady_clock::time_point made_ = steady_clock::now();
  Mutex mutex_;
  std::vector<Replica> replicas_;  // `told` and `was_ready` change under the mutex
  std::size_t next_ NS_GUARDED_BY(mutex_);
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

StatusOr<v1::EvaluatePlanResponse> PlannerClient::EvaluatePlan(v1::ShardPlanRequest request,
                                                               v1::Plan plan) const {
  v1::EvaluatePlanRequest question;
  *question.mutable_request() = std::move(request);
  *question.mutable_plan() = std::move(plan);
  return impl_->Call(&v1::PlannerService::Stub::EvaluatePlan, question);
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
