#include "common/rpc/rpc_gate.h"

#include <exception>

#include "common/base/failure_reason.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

struct DecrementAtEnd {
  explicit DecrementAtEnd(std::atomic<int>& counter) : count(counter) {}
  ~DecrementAtEnd() { --count; }
  std::atomic<int>& count;
};

}  // namespace

RpcGate::RpcGate(int max_in_flight, const Clock& clock, RpcMetrics* metrics)
    : max_in_flight_(max_in_flight), clock_(clock), metrics_(metrics) {}

grpc::Status RpcGate::Serve(const std::string& rpc, const std::function<Status()>& handler) {
  const TimePoint begin = clock_.Now();
  if (metrics_ != nullptr) metrics_->Began(rpc);
  const Status status = Run(handler);
  if (metrics_ != nullptr) {
    metrics_->Ended(rpc, status.code(), MillisecondsBetween(begin, clock_.Now()) / 1e3);
  }
  return ToGrpc(status);
}

Status RpcGate::Run(const std::function<Status()>& handler) {
  if (!admitting_.load(std::memory_order_relaxed)) {
    return WithReason(Unavailable("the server is draining; try another replica"),
                      FailureReason::kDraining);
  }
  const int position = ++in_flight_;
  const DecrementAtEnd leave_when_done(in_flight_);
  if (position > max_in_flight_) {
    return WithReason(
        ResourceExhausted("{} calls are in flight, which is this server's limit; try again later",
                          max_in_flight_),
        FailureReason::kOverloaded);
  }
  try {
    return handler();
  } catch (const std::exception& error) {
    return Internal("unexpected exception: {}", error.what());
  }
}

}  // namespace neuroshard
