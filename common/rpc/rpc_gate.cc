#include "common/rpc/rpc_gate.h"

#include <chrono>
#include <exception>
#include <tuple>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/base/printable_text.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

constexpr int kFailureLinesASecond = 100;

bool IsOurFault(const Status& status) {
  return absl::IsInternal(status) || absl::IsUnknown(status) || absl::IsDataLoss(status);
}

}  // namespace

RpcGate::RpcGate(int max_in_flight, const Clock& clock, RpcMetrics* metrics, const Logger* logger,
                 CallerQuotas* quotas)
    : max_in_flight_(max_in_flight),
      clock_(clock),
      metrics_(metrics),
      logger_(logger),
      quotas_(quotas) {
  if (metrics_ != nullptr) metrics_->SetLimit(max_in_flight);
}

grpc::Status RpcGate::Serve(grpc::ServerContextBase& context, const std::string& rpc,
                            const std::function<Status(Call&)>& handler, Kind kind) {
  Call call(*this, context, rpc, kind);
  return call.End(call.admission().ok() ? Call::Run([&] { return handler(call); })
                                        : call.admission());
}

void RpcGate::RefusedOutside(const CallIdentity& identity, std::string_view path,
                             const Status& status) {
  if (metrics_ != nullptr) metrics_->RefusedOutside(path, status);
  if (logger_ == nullptr) return;
  const auto log = LogOfFailure(identity.Log(*logger_));
  if (!log.has_value()) return;
  log->Info("call_refused", {{"path", Printable(path, 200)},
                             {"code", absl::StatusCodeToString(status.code())},
                             {"message", Message(status)}});
}

std::optional<Logger> RpcGate::LogOfFailure(const Logger& logger) {
  const MutexLock lock(failures_mutex_);
  const TimePoint now = clock_.Now();
  if (now - failures_since_ >= std::chrono::seconds(1)) {
    failures_since_ = now;
    failures_logged_ = 0;
  }
  if (failures_logged_ == kFailureLinesASecond) {
    ++failures_not_logged_;
    return std::nullopt;
  }
  ++failures_logged_;
  const std::int64_t before = std::exchange(failures_not_logged_, 0);
  return before == 0 ? logger : logger.With({{"not_logged", before}});
}

RpcGate::Call::Call(RpcGate& gate, grpc::ServerContextBase& context, std::string rpc, Kind kind)
    : gate_(gate),
      context_(context),
      rpc_(std::move(rpc)),
      kind_(kind),
      begin_(gate.clock_.Now()),
      identity_(IdentifyCall(context)) {
  if (gate_.metrics_ != nullptr) gate_.metrics_->Began(rpc_);
  if (kind_ == Kind::kCounted) ++gate_.in_flight_;
  admission_ = Admit();
}

Status RpcGate::Call::Admit() const {
  if (!gate_.admitting_.load(std::memory_order_relaxed)) {
    return WithReason(Unavailable("the server is draining; try another replica"),
                      FailureReason::kDraining);
  }
  if (kind_ == Kind::kCheap) return absl::OkStatus();
  if (gate_.in_flight_ > gate_.max_in_flight_) {
    return WithReason(
        WithRetryAfter(ResourceExhausted("{} calls are in flight, which is this server's limit; "
                                         "try again later",
                                         gate_.max_in_flight_),
                       kRetryAfter),
        FailureReason::kOverloaded);
  }
  return gate_.quotas_ == nullptr ? absl::OkStatus() : gate_.quotas_->Admit(identity_.caller);
}

RpcGate::Call::~Call() {
  if (!ended_) std::ignore = End(Internal("the call has no end"));
}

void RpcGate::Call::SetRequestId(const std::string& request_id) {
  if (!request_id.empty()) identity_.request_id = request_id;
}

Logger RpcGate::Call::Log(const Logger& logger) const {
  return identity_.Log(logger).With({{"rpc", rpc_}});
}

void RpcGate::Call::ChargeSearch(double seconds) const {
  if (gate_.quotas_ != nullptr) gate_.quotas_->ChargeSearch(identity_.caller, seconds);
}

Status RpcGate::Call::Run(const std::function<Status()>& handler) {
  try {
    return handler();
  } catch (const std::exception& error) {
    return Internal("unexpected exception: {}", error.what());
  }
}

void RpcGate::Call::LogFailure(const Status& status, double duration_ms) const {
  const auto log = gate_.LogOfFailure(Log(*gate_.logger_));
  if (!log.has_value()) return;
  const Logger::Fields fields = {{"duration_ms", duration_ms},
                                 {"code", absl::StatusCodeToString(status.code())},
                                 {"message", Message(status)}};
  IsOurFault(status) ? log->Error("call_failed", fields) : log->Info("call_failed", fields);
}

grpc::Status RpcGate::Call::End(const Status& status) {
  ended_ = true;
  const double duration_ms = MillisecondsBetween(begin_, gate_.clock_.Now());
  if (kind_ == Kind::kCounted) --gate_.in_flight_;
  if (gate_.metrics_ != nullptr) gate_.metrics_->Ended(rpc_, status, duration_ms / 1e3);
  if (gate_.logger_ != nullptr && status.ok()) {
    Log(*gate_.logger_).Debug("call_done", {{"duration_ms", duration_ms}});
  } else if (gate_.logger_ != nullptr) {
    LogFailure(status, duration_ms);
  }
  context_.AddTrailingMetadata(kRequestIdKey, RequestIdHeader(identity_.request_id));
  return ToGrpc(status);
}

}  // namespace neuroshard
