// Stop signal of a running RPC.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "common/base/clock.h"
#include "common/base/stop_signal.h"

namespace neuroshard {

// Stops when the caller cancelled, when the call's deadline is so near that the answer just makes
// it, or when the server drains. A cancel is noticed within milliseconds. For use while the handler
// runs; `context`, `draining` and `clock` must outlive it. Thread-safe.
class CallStop final : public StopSignal {
 public:
  // RpcGate::draining() is the usual `draining`. `longest` is the server's own limit, from now on,
  // for callers that set no deadline or a later one; none: no limit.
  CallStop(const grpc::ServerContextBase& context, const StopSignal& draining, const Clock& clock,
           std::optional<std::chrono::milliseconds> longest = std::nullopt);

  // On a thread of CallThreads also gives way to other calls.
  bool ShouldStop() const override;

  // Less than the answer margin is left, or the server's limit has passed.
  bool deadline_reached() const;
  bool cancelled() const { return context_.IsCancelled(); }
  // Time until ShouldStop turns true because of the deadline; none when there is neither deadline
  // nor limit.
  std::optional<TimePoint> stop_at() const { return stop_at_; }

 private:
  bool CancelSeen() const;

  const grpc::ServerContextBase& context_;
  const StopSignal& draining_;
  const Clock& clock_;
  mutable std::atomic<bool> cancel_seen_{false};
  mutable std::atomic<TimePoint::duration> next_check_at_{TimePoint::duration::min()};
  std::optional<TimePoint> stop_at_;
};

}  // namespace neuroshard
