// RpcGate: admission, quotas, metrics, logs of failures, exceptions and the drain, around every RPC
// of a process.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/observe/logger.h"
#include "common/observe/server_metrics.h"
#include "common/rpc/call_budget.h"
#include "common/rpc/callers.h"

namespace neuroshard {

// Admits the calls of a server, counts them and tells what came of them. Owned by main, shared by
// the services and the RpcServer. Thread-safe.
class RpcGate {
 public:
  // At most `max_in_flight` (>= 1) handlers run at the same time. All that is given must outlive
  // the gate; quotas may be null.
  RpcGate(int max_in_flight, const Clock& clock, RpcMetrics& metrics, const Logger& logger,
          CallerQuotas* quotas = nullptr);

  // Cheap calls (health, which models, which devices) are not counted against max_in_flight, nor
  // refused for it: they are what an operator asks when a server is overloaded.
  enum class Kind { kCounted, kCheap };

  // One call from its admission to its end, for handlers that do not end on the thread where they
  // begin. Ends by itself, as INTERNAL in the metrics, where End is not called. The caller is told
  // the request id with the answer (x-request-id of the trailing metadata).
  class Call {
   public:
    // `context` must outlive this.
    Call(RpcGate& gate, grpc::ServerContextBase& context, std::string rpc, Kind kind);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Not OK: the call is refused with it, and nothing else may be done for it.
    const Status& admission() const { return admission_; }
    grpc::ServerContextBase& context() const { return context_; }
    const CallIdentity& identity() const { return identity_; }
    // The request brings an id of its own, unless it is empty.
    void SetRequestId(const std::string& request_id);
    // `logger` with the ids, the caller and `rpc` in every line.
    Logger Log(const Logger& logger) const;
    // Counts time that the call searched, times its threads, against its caller's quota.
    void ChargeSearch(double seconds) const;
    // What `handler` returns, an exception as INTERNAL.
    static Status Run(const std::function<Status()>& handler);
    // Records the end, logs a failure and turns the status into gRPC's. Once.
    grpc::Status End(const Status& status);

   private:
    Status Admit() const;
    void LogFailure(const Status& status, double duration_ms) const;

    RpcGate& gate_;
    grpc::ServerContextBase& context_;
    const std::string rpc_;
    const Kind kind_;
    const TimePoint begin_;
    CallIdentity identity_;
    Status admission_;
    bool ended_ = false;
  };

  // The body of an RPC method: runs `handler` if the call is admitted and turns its status into
  // gRPC's. Without running it: RESOURCE_EXHAUSTED quoting the limit when max_in_flight handlers
  // run or the caller is over its quota, UNAVAILABLE when the server drains. An exception that
  // escapes `handler` becomes INTERNAL. `rpc` is the method's name, the metrics' label.
  //   grpc::Status ListThings(grpc::ServerContext* context, const Req* request, Resp* response) {
  //     return gate_.Serve(*context, "ListThings",
  //                        [&](RpcGate::Call&) { return DoListThings(*request, response); });
  //   }
  grpc::Status Serve(grpc::ServerContextBase& context, const std::string& rpc,
                     const std::function<Status(Call&)>& handler, Kind kind = Kind::kCounted);

  // A call that `status` refused before it came to a handler: no role, no such method, no such
  // message. `path` is "/package.Service/Method".
  void RefusedOutside(const CallIdentity& identity, std::string_view path, const Status& status);
  // A connection was reset: its client is among those that began the most of `open_calls` calls.
  void ConnectionReset(const std::string& peer, std::int64_t open_calls);

  int max_in_flight() const { return max_in_flight_; }
  RpcMetrics& metrics() const { return metrics_; }
  const Logger& logger() const { return logger_; }
  // When calls that are refused for want of room should come back; for whoever else refuses some.
  RetryPacer& retry_pacer() { return retry_pacer_; }

  // Stops once running calls shall come to an end with what they have: the server drains.
  const StopSignal& draining() const { return draining_; }
  int in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

  // Called by RpcServer, in this order. From StopAdmitting on, Serve answers UNAVAILABLE.
  void StopAdmitting() { admitting_.store(false, std::memory_order_relaxed); }
  void StopRunningCalls() { draining_.Stop(); }

 private:
  // Lines about failures, of one kind.
  struct FailureLines {
    TimePoint since;
    int logged = 0;
    std::int64_t not_logged = 0;
  };

  enum class Failure { kOurs, kCallers, kConnectionReset };
  // Failures come in floods, so at most a hundred a second of each kind are logged. How many were
  // not since the last one that was; none: this one is not either.
  std::optional<std::int64_t> CountFailure(Failure kind);

  const int max_in_flight_;
  const Clock& clock_;
  RpcMetrics& metrics_;
  const Logger& logger_;
  CallerQuotas* const quotas_;
  RetryPacer retry_pacer_;
  std::atomic<int> in_flight_{0};
  std::atomic<bool> admitting_{true};
  ManualStop draining_;
  Mutex failures_mutex_;
  std::map<Failure, FailureLines> failures_ NS_GUARDED_BY(failures_mutex_);
};

}  // namespace neuroshard
