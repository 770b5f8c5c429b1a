#include "common/rpc/rpc_gate.h"

#include <chrono>
#include <exception>
#include <tuple>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {
RpcGate::RpcGate(int max_in_flight, const Clock& clock, RpcMetrics* metrics)
    : max_in_flight_(max_in_flight), clock_(clock), metrics_(metrics) {
  if (metrics_ != nullptr) metrics_->SetLimit(max_in_flight);
}

grpc::Status RpcGate::Serve(const std::string& rpc, const std::function<Status()>& handler,
                            Kind kind) {
  Call call(*this, rpc, kind);
  return call.End(call.admission().ok() ? Call::Run(handler) : call.admission());
}

RpcGate::Call::Call(RpcGate& gate, std::string rpc, Kind kind)
    : gate_(gate), rpc_(std::move(rpc)), kind_(kind), begin_(gate.clock_.Now()) {
  if (gate_.metrics_ != nullptr) gate_.metrics_->Began(rpc_);
  if (kind_ == Kind::kCounted) ++gate_.in_flight_;
  admission_ = Admit();
}

Status RpcGate::Call::Admit() const {
  if (!gate_.admitting_.load(std::memory_order_relaxed)) {
    return WithReason(Unavailable("the server is draining; try another replica"),
                      FailureReason::kDraining);
  }
  if (kind_ == Kind::kCounted && gate_.in_flight_ > gate_.max_in_flight_) {
    return WithReason(
        WithRetryAfter(ResourceExhausted("{} calls are in flight, which is this server's limit; "
                                         "try again later",
                                         gate_.max_in_flight_),
                       kRetryAfter),
        FailureReason::kOverloaded);
  }
  return absl::OkStatus();
}

RpcGate::Call::~Call() {
  if (!ended_) std::ignore = End(Internal("the call has no end"));
}

Status RpcGate::Call::Run(const std::function<Status()>& handler) {
  try {
    return handler();
  } catch (const std::exception& error) {
    return Internal("unexpected exception: {}", error.what());
  }
}

grpc::Status RpcGate::Call::End(const Status& status) {
  ended_ = true;
  if (kind_ == Kind::kCounted) --gate_.in_flight_;
  if (gate_.metrics_ != nullptr) {
    gate_.metrics_->Ended(rpc_, status, MillisecondsBetween(begin_, gate_.clock_.Now()) / 1e3);
  }
  return ToGrpc(status);
}

}  // namespace neuroshard
