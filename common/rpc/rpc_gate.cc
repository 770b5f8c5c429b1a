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
constexpr std::size_t kMaxRequestIdBytes = 256;

bool IsOurFault(const Status& status) {
  return absl::IsInternal(status) || absl::IsUnknown(status) || absl::IsDataLoss(status);
}

// `not_logged` failures came before.
Logger WithNotLogged(const Logger& logger, std::int64_t not_logged) {
  return not_logged == 0 ? logger : logger.With({{"not_logged", not_logged}});
}

}  // namespace

RpcGate::RpcGate(int max_in_flight, const Clock& clock, RpcMetrics& metrics, const Logger& logger,
                 CallerQuotas* quotas)
    : max_in_flight_(max_in_flight),
      clock_(clock),
      metrics_(metrics),
      logger_(logger),
      quotas_(quotas),
      retry_pacer_(clock) {
  metrics_.SetLimit(max_in_flight);
}

grpc::Status RpcGate::Serve(grpc::ServerContextBase& context, const std::string& rpc,
                            const std::function<Status(Call&)>& handler, Kind kind) {
  Call call(*this, context, rpc, kind);
  return call.End(call.admission().ok() ? Call::Run([&] { return handler(call); })
                                        : call.admission());
}

void RpcGate::RefusedOutside(const CallIdentity& identity, std::string_view path,
                             const Status& status) {
  metrics_.RefusedOutside(path, status);
  const auto before = CountFailure(Failure::kCallers);
  if (!before.has_value()) return;
  WithNotLogged(identity.Log(logger_), *before)
      .Info("call_refused", {{"rpc", Printable(path.substr(path.rfind('/') + 1), 200)},
                             {"path", Printable(path, 200)},
                             {"code", absl::StatusCodeToString(status.code())},
                             {"message", Message(status)}});
}

std::optional<std::int64_t> RpcGate::CountFailure(Failure kind) {
  const bool is_written = kind == Failure::kCallers ? logger_.WritesInfo() : logger_.WritesError();
  if (!is_written) return std::nullopt;
  const MutexLock lock(failures_mutex_);
  FailureLines& lines = failures_[kind];
  const TimePoint now = clock_.Now();
  if (now - lines.since >= std::chrono::seconds(1)) {
    lines.since = now;
    lines.logged = 0;
  }
  if (lines.logged == kFailureLinesASecond) {
    ++lines.not_logged;
    return std::nullopt;
  }
  ++lines.logged;
  return std::exchange(lines.not_logged, 0);
}

void RpcGate::ConnectionReset(const std::string& peer, std::int64_t open_calls) {
  metrics_.ConnectionReset();
  const auto before = CountFailure(Failure::kConnectionReset);
  if (!before.has_value()) return;
  WithNotLogged(logger_, *before)
      .Error("connection_reset",
             {{"peer", peer},
              {"open_calls", open_calls},
              {"reason", "calls begin faster than they can end, and its client begins the most"}});
}

RpcGate::Call::Call(RpcGate& gate, grpc::ServerContextBase& context, std::string rpc, Kind kind)
    : gate_(gate),
      context_(context),
      rpc_(std::move(rpc)),
      kind_(kind),
      begin_(gate.clock_.Now()),
      identity_(IdentifyCall(context)) {
  gate_.metrics_.Began(rpc_);
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
                       gate_.retry_pacer_.Next()),
        FailureReason::kOverloaded);
  }
  return gate_.quotas_ == nullptr ? absl::OkStatus() : gate_.quotas_->Admit(identity_.caller);
}

RpcGate::Call::~Call() {
  if (!ended_) std::ignore = End(Internal("the call has no end"));
}

void RpcGate::Call::SetRequestId(const std::string& request_id) {
  // Longer ones are refused later.
  if (!request_id.empty()) identity_.request_id = request_id.substr(0, kMaxRequestIdBytes);
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
  const bool ours = IsOurFault(status);
  const auto before = gate_.CountFailure(ours ? Failure::kOurs : Failure::kCallers);
  if (!before.has_value()) return;
  const Logger log = WithNotLogged(Log(gate_.logger_), *before);
  const Logger::Fields fields = {{"duration_ms", duration_ms},
                                 {"code", absl::StatusCodeToString(status.code())},
                                 {"message", Message(status)}};
  ours ? log.Error("call_failed", fields) : log.Info("call_failed", fields);
}

grpc::Status RpcGate::Call::End(const Status& status) {
  ended_ = true;
  const double duration_ms = MillisecondsBetween(begin_, gate_.clock_.Now());
  if (kind_ == Kind::kCounted) {
    --gate_.in_flight_;
    if (!absl::IsResourceExhausted(status)) gate_.retry_pacer_.CallEnded();
  }
  gate_.metrics_.Ended(rpc_, status, duration_ms / 1e3);
  if (!status.ok()) {
    LogFailure(status, duration_ms);
  } else if (gate_.logger_.WritesDebug()) {
    Log(gate_.logger_).Debug("call_done", {{"duration_ms", duration_ms}});
  }
  context_.AddTrailingMetadata(kRequestIdKey, RequestIdHeader(identity_.request_id));
  return ToGrpc(status);
}

}  // namespace neuroshard
