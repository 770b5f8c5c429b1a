// PlannerService over gRPC: it admits, decodes, derives the stop signal, calls the planner, encodes
// and records. It makes no decisions.
//
// It uses gRPC's callback interface with the bytes of requests, so that a call takes no thread and
// no memory but its bytes until it is admitted. Refusals and cheap calls are answered on gRPC's
// threads. Admitted calls run on threads of a lower priority, so that refusals and cheap calls
// hardly wait for a core beside searches.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/codec/request_codec.h"
#include "common/codec/wire_check.h"
#include "common/observe/logger.h"
#include "common/rpc/call_budget.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/callers.h"
#include "common/rpc/rpc_gate.h"
#include "neuroshard/v1/planner.grpc.pb.h"
#include "neuroshard/v1/status.pb.h"
#include "server/models/model_repository.h"
#include "server/planner/planner.h"
#include "server/service/planner_metrics.h"
#include "server/service/update_stream.h"

namespace neuroshard {

// gRPC's names.
using CallBytes = grpc::ByteBuffer;
using CallContext = grpc::CallbackServerContext;
using UnaryCall = grpc::ServerUnaryReactor;

// Limits of all calls together, and of a caller's silence.
struct PlannerServiceLimits {
  // Cores that the searches in flight may use together; 0: DefaultSearchThreadsInFlight().
  int max_search_threads_in_flight = 0;
  // Memory of the parsed requests of all calls in flight, estimated from their bytes.
  std::int64_t max_request_memory_bytes = 512 * kMiB;
  // Strings and messages in one request.
  std::int64_t max_request_values = 4'000'000;
  // Time after which a caller that does not read its stream loses the call.
  std::chrono::milliseconds write_timeout{10'000};
};

// Returns eight per core of this host, so that a search under full load takes eight times as long
// as alone.
int DefaultSearchThreadsInFlight();

// Dependencies of the service; all must outlive it.
struct PlannerServiceParts {
  const Planner& planner;
  const ModelRepository& models;
  RpcGate& gate;
  const Clock& clock;
  const Logger& logger;
  PlannerMetrics& metrics;
  RequestLimits limits;
  std::chrono::milliseconds longest_search;  // then the best plan so far is the answer
  PlannerServiceLimits service_limits = {};
  // ModelRepository::Serve. Null: ServeModel is UNIMPLEMENTED.
  std::function<StatusOr<ModelChannel>(const std::string& name, int version,
                                       std::optional<double> share)>
      serve_model = {};
};

// List of the latest calls for plans, for the status page. Each takes some hundred bytes, whatever
// callers send. Thread-safe.
class RecentPlans {
 public:
  static constexpr std::size_t kMaxPlans = 20;

  // Adds a call that ended now with `answer`.
  void Add(const CallIdentity& identity, const v1::ShardPlanRequest& request,
           const StatusOr<v1::ShardPlanResponse>& answer);
  // Appends the calls, the last one first.
  void AppendTo(v1::PlannerStatus& status) const;

 private:
  mutable Mutex mutex_;
  std::deque<v1::RecentPlan> plans_ NS_GUARDED_BY(mutex_);
};

// The RPCs of PlannerService: each is admitted, decoded, answered by the planner and encoded on
// CallThreads. It keeps no state between calls. Thread-safe; must outlive the server.
class PlannerServiceImpl final
    : public v1::PlannerService::WithRawCallbackMethod_ShardPlan<
          v1::PlannerService::WithRawCallbackMethod_ShardPlanStream<
              v1::PlannerService::WithRawCallbackMethod_EvaluatePlan<
                  v1::PlannerService::WithRawCallbackMethod_PredictCompute<
                      v1::PlannerService::WithCallbackMethod_ListCostModels<
                          v1::PlannerService::WithCallbackMethod_GetCostModel<
                              v1::PlannerService::WithCallbackMethod_ListDevices<
                                  v1::PlannerService::WithCallbackMethod_ServeModel<
                                      v1::PlannerService::Service>>>>>>>> {
 public:
  explicit PlannerServiceImpl(PlannerServiceParts parts);

  // Returns the status for the operators' page. Thread-safe.
  v1::PlannerStatus CurrentStatus() const;

  UnaryCall* ShardPlan(CallContext* context, const CallBytes* request,
                       CallBytes* response) override;
  grpc::ServerWriteReactor<CallBytes>* ShardPlanStream(CallContext* context,
                                                       const CallBytes* request) override;
  UnaryCall* EvaluatePlan(CallContext* context, const CallBytes* request,
                          CallBytes* response) override;
  UnaryCall* PredictCompute(CallContext* context, const CallBytes* request,
                            CallBytes* response) override;
  UnaryCall* ListCostModels(CallContext* context, const v1::ListCostModelsRequest* request,
                            v1::ListCostModelsResponse* response) override;
  UnaryCall* GetCostModel(CallContext* context, const v1::GetCostModelRequest* request,
                          v1::GetCostModelResponse* response) override;
  UnaryCall* ListDevices(CallContext* context, const v1::ListDevicesRequest* request,
                         v1::ListDevicesResponse* response) override;
  UnaryCall* ServeModel(CallContext* context, const v1::ServeModelRequest* request,
                        v1::ServeModelResponse* response) override;

 private:
  // A counted call with its shares of the memory for requests and, for a plan, of the threads for
  // searches.
  struct Admitted {
    Admitted(RpcGate& gate, grpc::ServerContextBase& context, const std::string& rpc)
        : call(gate, context, rpc, RpcGate::Kind::kCounted) {}
    RpcGate::Call call;
    CallBudget::Share memory;
    CallBudget::Share threads;
  };

  // Checks a call before its request is parsed and returns whether it may be. The caller ends the
  // call either way.
  template <typename Request>
  Status Admit(const CallBytes& bytes, Admitted& admitted);
  // Admits the call, parses the request, runs `handler` (of Admitted and Request) on a thread, and
  // answers.
  template <typename Request, typename Handler>
  UnaryCall* Answer(const std::string& rpc, CallContext& context, const CallBytes& bytes,
                    CallBytes& response, Handler handler);
  UnaryCall* AnswerHere(const std::string& rpc, CallContext& context,
                        const std::function<Status(RpcGate::Call&)>& handler);

  // `updates` may be null.
  StatusOr<v1::ShardPlanResponse> MakePlan(Admitted& admitted, const v1::ShardPlanRequest& message,
                                           UpdateStream* updates);
  StatusOr<v1::ShardPlanResponse> SearchPlan(Admitted& admitted,
                                             const v1::ShardPlanRequest& message,
                                             UpdateStream* updates);

  v1::ListCostModelsResponse ListModels() const;

  const PlannerServiceParts parts_;
  const std::int64_t started_unix_ms_ = UnixMillisecondsNow();
  RecentPlans recent_plans_;
  const WireLimits wire_limits_;
  CallBudget request_memory_;
  CallBudget search_threads_;
  CallThreads threads_;  // last: its work uses everything above
};

}  // namespace neuroshard
