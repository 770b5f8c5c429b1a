#include "server/service/planner_service.h"

#include <fmt/ranges.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <thread>
#include <type_traits>
#include <utility>

#include "common/base/build_info.h"
#include "common/base/failure_reason.h"
#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/codec/prediction_codec.h"
#include "server/cost/model_error.h"
#include "server/service/planner_messages.h"

namespace neuroshard {
namespace {

// The steps by which the threads that parse and search are below gRPC's: 10 steps are about a tenth
// of the time that threads which compete for a core at the process's priority get.
constexpr int kNicenessOfWork = 10;
// The calls that have their turn: while one is woken, another runs, and few share a core.
constexpr int kTurnsPerCore = 2;
// Bytes of a text that the status page shows.
constexpr std::size_t kShownBytes = 200;

int NumCores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

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

bool IsDefault(const ModelSnapshot& snapshot, const CostModel& model) {
  const auto found = snapshot.Find({});
  return found.ok() && found->get() == &model;
}

// The model that a request which got no plan was for; nameless where there is none.
CostModelRef AskedModel(const PlanRequest& request, const ModelSnapshot& snapshot) {
  const auto found = snapshot.FindFor(request);
  if (!found.ok()) return {};
  return {found->front()->info().name, found->front()->info().version};
}

// A model of its devices answers a request that names none, also where the operator's choice is
// gone.
void WarnOfMissingDefault(const ModelSnapshot& snapshot, PlanRequest& request) {
  if (request.cost_model != CostModelRef()) return;
  const std::string missing = snapshot.MissingDefault();
  if (missing.empty()) return;
  request.warnings.push_back(
      "the planner's default cost model is missing, so another one answers: " + missing);
}

template <typename Message>
StatusOr<Message> Parse(const CallBytes& bytes) {
  CallBytes copy(bytes);  // of references
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(&copy, &message).ok()) {
    return InvalidArgument("the request is no {}: its bytes are cut, or a text in it is not UTF-8",
                           Message::descriptor()->full_name());
  }
  return message;
}

template <typename Message>
Status Serialize(const Message& message, CallBytes& bytes) {
  bool own_buffer = false;
  const grpc::Status status =
      grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own_buffer);
  return status.ok() ? absl::OkStatus() : Internal("the answer cannot be encoded");
}

}  // namespace

void RecentPlans::Add(const CallIdentity& identity, const v1::ShardPlanRequest& request,
                      const StatusOr<v1::ShardPlanResponse>& answer) {
  v1::RecentPlan plan;
  plan.set_ended_unix_ms(UnixMillisecondsNow());
  plan.set_caller(Printable(identity.caller, kShownBytes));
  plan.set_request_id(Printable(identity.request_id, kShownBytes));
  plan.set_tables(request.tables_size());
  if (!answer.ok()) {
    plan.set_status(fmt::format("{}: {}", absl::StatusCodeToString(answer.status().code()),
                                Printable(Message(answer.status()), kShownBytes)));
  } else {
    plan.set_status("OK");
    plan.set_ranks(answer->plan().world_size());
    plan.set_strategy(answer->search().strategy());
    plan.set_model(
        fmt::format("{}/{}", answer->cost_model().name(), answer->cost_model().version()));
    plan.set_cost_ms(answer->cost().embedding_cost_ms());
    if (answer->has_lower_bound()) plan.set_lower_bound_ms(answer->lower_bound().cost_ms());
    plan.set_search_ms(answer->search().search_ms());
  }
  const MutexLock lock(mutex_);
  plans_.push_front(std::move(plan));
  if (plans_.size() > kMaxPlans) plans_.pop_back();
}

void RecentPlans::AppendTo(v1::PlannerStatus& status) const {
  const MutexLock lock(mutex_);
  status.mutable_recent_plans()->Add(plans_.begin(), plans_.end());
}

int DefaultSearchThreadsInFlight() { return 8 * NumCores(); }

PlannerServiceImpl::PlannerServiceImpl(PlannerServiceParts parts)
    : parts_(parts),
      wire_limits_{
          .counted_type = v1::Table::descriptor()->full_name(),
          // Requests a little over the limit are decoded, so that all their faults are named.
          .max_counted = 2 * parts_.limits.max_tables,
          .counted_option = "twice limits.max_tables",
          .max_values = parts_.service_limits.max_request_values,
          .values_option = "limits.max_request_values"},
      request_memory_(parts_.service_limits.max_request_memory_bytes,
                      "bytes of memory for requests", "rpc.max_request_memory_bytes",
                      parts_.gate.retry_pacer(),
                      [&metrics = parts_.metrics](std::int64_t taken, std::int64_t most) {
                        metrics.SetRequestMemory(taken, most);
                      }),
      search_threads_(parts_.service_limits.max_search_threads_in_flight > 0
                          ? parts_.service_limits.max_search_threads_in_flight
                          : DefaultSearchThreadsInFlight(),
                      "threads of searches", "rpc.max_search_threads_in_flight",
                      parts_.gate.retry_pacer(),
                      [&metrics = parts_.metrics](std::int64_t taken, std::int64_t most) {
                        metrics.SetSearchThreads(taken, most);
                      }),
      threads_(parts_.gate.max_in_flight(), kNicenessOfWork,
               {.max_running = kTurnsPerCore * NumCores()}) {}

template <typename Request>
Status PlannerServiceImpl::Admit(const CallBytes& bytes, Admitted& admitted) {
  NS_RETURN_IF_ERROR(admitted.call.admission());
  if constexpr (std::is_same_v<Request, v1::ShardPlanRequest>) {
    // How many threads a plan takes is not known before it is parsed, but that it takes one.
    auto one = search_threads_.Take(1);
    if (!one.ok()) {
      parts_.metrics.PlanFailed(one.status());
      return one.status();
    }
    admitted.threads = *std::move(one);
  }
  CallBytes copy(bytes);  // of references
  grpc::ProtoBufferReader reader(&copy);
  NS_ASSIGN_OR_RETURN(const WireSize size,
                      CheckOnTheWire(reader, *Request::descriptor(), wire_limits_));
  NS_ASSIGN_OR_RETURN(admitted.memory, request_memory_.Take(size.ParsedBytes()));
  return absl::OkStatus();
}

template <typename Request, typename Handler>
UnaryCall* PlannerServiceImpl::Answer(const std::string& rpc, CallContext& context,
                                      const CallBytes& bytes, CallBytes& response,
                                      Handler handler) {
  UnaryCall* const reactor = context.DefaultReactor();
  const auto admitted = std::make_shared<Admitted>(parts_.gate, context, rpc);
  if (const Status status = Admit<Request>(bytes, *admitted); !status.ok()) {
    reactor->Finish(admitted->call.End(status));
    return reactor;
  }
  threads_.Run([this, reactor, admitted, &bytes, &response, handler] {
    const Status status = RpcGate::Call::Run([&]() -> Status {
      NS_ASSIGN_OR_RETURN(const Request request, Parse<Request>(bytes));
      NS_ASSIGN_OR_RETURN(const auto answer, handler(*admitted, request));
      return Serialize(answer, response);
    });
    admitted->memory = {};
    admitted->threads = {};
    // Whatever belongs to the call may be gone afterwards.
    reactor->Finish(admitted->call.End(status));
  });
  return reactor;
}

UnaryCall* PlannerServiceImpl::AnswerHere(const std::string& rpc, CallContext& context,
                                          const std::function<Status(RpcGate::Call&)>& handler) {
  UnaryCall* const reactor = context.DefaultReactor();
  reactor->Finish(parts_.gate.Serve(context, rpc, handler, RpcGate::Kind::kCheap));
  return reactor;
}

StatusOr<v1::ShardPlanResponse> PlannerServiceImpl::MakePlan(Admitted& admitted,
                                                             const v1::ShardPlanRequest& message,
                                                             UpdateStream* updates) {
  auto answer = SearchPlan(admitted, message, updates);
  recent_plans_.Add(admitted.call.identity(), message, answer);
  return answer;
}

StatusOr<v1::ShardPlanResponse> PlannerServiceImpl::SearchPlan(Admitted& admitted,
                                                               const v1::ShardPlanRequest& message,
                                                               UpdateStream* updates) {
  admitted.call.SetRequestId(message.request_id());
  const auto failed = [this](const Status& status, const CostModelRef& model = {}) {
    parts_.metrics.PlanFailed(status, model);
    return status;
  };
  auto request = DecodePlanRequest(message, parts_.limits);
  if (!request.ok()) return failed(request.status());
  request->request_id = admitted.call.identity().request_id;
  WarnOfMissingDefault(*parts_.models.Current(), *request);
  const Status threads = search_threads_.Grow(admitted.threads, request->search.max_threads - 1);
  if (!threads.ok()) return failed(threads);
  const CallStop stop(admitted.call.context(), parts_.gate.draining(), parts_.clock,
                      parts_.longest_search);
  std::optional<PlanStream> stream;
  if (updates != nullptr) stream.emplace(*request, parts_.clock, *updates);
  const TimePoint begin = parts_.clock.Now();
  const auto answer =
      parts_.planner.MakePlan(*request, stop, stream.has_value() ? &*stream : nullptr);
  admitted.call.ChargeSearch(MillisecondsBetween(begin, parts_.clock.Now()) / 1e3 *
                             request->search.max_threads);
  if (!answer.ok()) {
    if (absl::IsInternal(answer.status())) parts_.metrics.PlanRejected();
    return failed(ExplainStop(answer.status(), stop, parts_.gate),
                  AskedModel(*request, *parts_.models.Current()));
  }
  parts_.metrics.PlanMade(*answer);
  admitted.call.Log(parts_.logger)
      .Info("plan_made", {{"model", answer->model.name},
                          {"version", answer->model.version},
                          {"strategy", answer->statistics.strategy},
                          {"tables", request->tables.size()},
                          {"ranks", request->topology.num_ranks()},
                          {"global_batch_size", request->global_batch_size},
                          {"cost_ms", answer->cost.embedding_cost_ms},
                          {"search_ms", answer->search_ms},
                          {"time_limit_reached", answer->statistics.time_limit_reached},
                          {"cancelled", stop.cancelled()}});
  return EncodePlanAnswer(*request, *answer, FingerprintOf(*request, *answer));
}

UnaryCall* PlannerServiceImpl::ShardPlan(CallContext* context, const CallBytes* request,
                                         CallBytes* response) {
  return Answer<v1::ShardPlanRequest>("ShardPlan", *context, *request, *response,
                                      [this](Admitted& admitted, const auto& message) {
                                        return MakePlan(admitted, message, nullptr);
                                      });
}

grpc::ServerWriteReactor<CallBytes>* PlannerServiceImpl::ShardPlanStream(CallContext* context,
                                                                         const CallBytes* bytes) {
  auto* const stream = new UpdateStream(*context, parts_.service_limits.write_timeout);  // gRPC's
  const auto admitted = std::make_shared<Admitted>(parts_.gate, *context, "ShardPlanStream");
  if (const Status status = Admit<v1::ShardPlanRequest>(*bytes, *admitted); !status.ok()) {
    stream->Close(admitted->call.End(status));
    return stream;
  }
  threads_.Run([this, stream, admitted, bytes] {
    const Status status = RpcGate::Call::Run([&]() -> Status {
      NS_ASSIGN_OR_RETURN(const auto request, Parse<v1::ShardPlanRequest>(*bytes));
      v1::ShardPlanUpdate last;
      NS_ASSIGN_OR_RETURN(*last.mutable_best(), MakePlan(*admitted, request, stream));
      last.set_progress(1);
      last.set_best_cost_ms(last.best().cost().embedding_cost_ms());
      last.set_final(true);
      if (!stream->Write(last)) return absl::CancelledError("the caller is gone or does not read");
      return absl::OkStatus();
    });
    admitted->memory = {};
    admitted->threads = {};
    stream->Close(admitted->call.End(status));
  });
  return stream;
}

UnaryCall* PlannerServiceImpl::EvaluatePlan(CallContext* context, const CallBytes* request,
                                            CallBytes* response) {
  const auto evaluate =
      [this](Admitted& admitted,
             const v1::EvaluatePlanRequest& message) -> StatusOr<v1::EvaluatePlanResponse> {
    admitted.call.SetRequestId(message.request().request_id());
    NS_ASSIGN_OR_RETURN(auto decoded, DecodeEvaluationRequest(message, parts_.limits));
    WarnOfMissingDefault(*parts_.models.Current(), decoded.request);
    NS_ASSIGN_OR_RETURN(const auto answer,
                        parts_.planner.EvaluatePlan(decoded.request, decoded.plan));
    admitted.call.Log(parts_.logger)
        .Info("plan_evaluated", {{"model", answer.model.name},
                                 {"version", answer.model.version},
                                 {"violations", answer.violations.size()}});
    return EncodeEvaluation(decoded.request, answer);
  };
  return Answer<v1::EvaluatePlanRequest>("EvaluatePlan", *context, *request, *response, evaluate);
}

UnaryCall* PlannerServiceImpl::PredictCompute(CallContext* context, const CallBytes* request,
                                              CallBytes* response) {
  const auto predict =
      [this](Admitted& admitted,
             const v1::PredictComputeRequest& message) -> StatusOr<v1::PredictComputeResponse> {
    admitted.call.SetRequestId(message.request_id());
    NS_ASSIGN_OR_RETURN(const auto asked, DecodePredictionRequest(message, parts_.limits));
    const CallStop stop(admitted.call.context(), parts_.gate.draining(), parts_.clock,
                        parts_.longest_search);
    const auto answer = parts_.planner.Predict(asked.cost_model, asked.sets, stop);
    if (!answer.ok()) return ExplainStop(answer.status(), stop, parts_.gate);
    v1::PredictComputeResponse predictions = EncodePrediction(*answer);
    predictions.set_request_id(admitted.call.identity().request_id);
    admitted.call.Log(parts_.logger)
        .Info("compute_predicted", {{"model", answer->model.name},
                                    {"version", answer->model.version},
                                    {"sets", asked.sets.size()}});
    return predictions;
  };
  return Answer<v1::PredictComputeRequest>("PredictCompute", *context, *request, *response,
                                           predict);
}

UnaryCall* PlannerServiceImpl::ListCostModels(CallContext* context,
                                              const v1::ListCostModelsRequest*,
                                              v1::ListCostModelsResponse* response) {
  return AnswerHere("ListCostModels", *context, [&](RpcGate::Call&) -> Status {
    *response = ListModels();
    return absl::OkStatus();
  });
}

v1::ListCostModelsResponse PlannerServiceImpl::ListModels() const {
  v1::ListCostModelsResponse response;
  const auto snapshot = parts_.models.Current();
  for (const auto& model : snapshot->models()) {
    *response.add_models() = EncodeModelSummary(model->info(), IsDefault(*snapshot, *model),
                                                snapshot->ShareOf(model->info()));
  }
  for (const RefusedModel& refused : snapshot->refused()) {
    v1::RefusedCostModel& entry = *response.add_refused();
    entry.set_path(refused.directory);
    entry.set_reason(refused.reason);
  }
  response.set_server_version(BuildVersion());
  response.set_server_git_commit(BuildGitCommit());
  response.set_now_unix_ms(UnixMillisecondsNow());
  return response;
}

v1::PlannerStatus PlannerServiceImpl::CurrentStatus() const {
  v1::PlannerStatus status;
  status.set_started_unix_ms(started_unix_ms_);
  status.set_draining(parts_.gate.draining().ShouldStop());
  *status.mutable_cost_models() = ListModels();
  const auto add_limit = [&](const std::string& option, std::int64_t used, std::int64_t limit) {
    v1::LimitInUse& entry = *status.add_limits();
    entry.set_option(option);
    entry.set_used(used);
    entry.set_limit(limit);
  };
  add_limit("rpc.max_in_flight", parts_.gate.in_flight(), parts_.gate.max_in_flight());
  for (const CallBudget* budget : {&search_threads_, &request_memory_}) {
    add_limit(budget->option(), budget->taken(), budget->most());
  }
  recent_plans_.AppendTo(status);
  return status;
}

UnaryCall* PlannerServiceImpl::GetCostModel(CallContext* context,
                                            const v1::GetCostModelRequest* message,
                                            v1::GetCostModelResponse* response) {
  return AnswerHere("GetCostModel", *context, [&](RpcGate::Call&) -> Status {
    const auto snapshot = parts_.models.Current();
    const v1::CostModelRef& ref = message->cost_model();
    NS_ASSIGN_OR_RETURN(const auto model, snapshot->Find({ref.name(), ref.version()}));
    NS_RETURN_IF_ERROR(CheckDigest({"", 0, ref.digest()}, model->info()));
    *response =
        EncodeModel(model->info(), IsDefault(*snapshot, *model), snapshot->ShareOf(model->info()));
    return absl::OkStatus();
  });
}

UnaryCall* PlannerServiceImpl::ListDevices(CallContext* context, const v1::ListDevicesRequest*,
                                           v1::ListDevicesResponse* response) {
  return AnswerHere("ListDevices", *context, [&](RpcGate::Call&) -> Status {
    for (const PublishedDevice& device : PublishedDevices()) {
      *response->add_devices() = EncodePublishedDevice(device);
    }
    return absl::OkStatus();
  });
}

UnaryCall* PlannerServiceImpl::ServeModel(CallContext* context,
                                          const v1::ServeModelRequest* message,
                                          v1::ServeModelResponse* response) {
  return AnswerHere("ServeModel", *context, [&](RpcGate::Call& call) -> Status {
    if (!parts_.serve_model) return absl::UnimplementedError("this planner's models are fixed");
    Violations violations;
    const FieldCheck check("", violations);
    if (message->name().empty()) check.Fail("name", "must not be empty");
    check.InRange("version", message->version(), 1, std::int64_t{INT32_MAX});
    if (message->has_share()) check.InRange("share", message->share(), 0, 1);
    NS_RETURN_IF_ERROR(violations.ToStatus());
    const std::optional<double> share =
        message->has_share() ? std::optional(message->share()) : std::nullopt;
    std::vector<std::string> reasons;
    for (const auto& model : parts_.models.Current()->VersionsOf(message->name())) {
      // A share of 0 takes the version back.
      if (model->info().version == message->version() && share != 0.0) {
        reasons = ReasonsAgainst(model->info());
      }
    }
    if (!reasons.empty() && !message->force()) {
      return FailedPrecondition(
          "cost model {} version {} should not serve: {}; `force` overrules it", message->name(),
          message->version(), fmt::join(reasons, "; "));
    }
    NS_ASSIGN_OR_RETURN(const ModelChannel channel,
                        parts_.serve_model(message->name(), message->version(), share));
    response->set_channel(channel.ToText());
    for (const std::string& reason : reasons) response->add_overruled(reason);
    call.Log(parts_.logger)
        .Audit("model_serving_set", {{"model", message->name()},
                                     {"serves", response->channel()},
                                     {"forced", !reasons.empty()}});
    return absl::OkStatus();
  });
}

}  // namespace neuroshard
