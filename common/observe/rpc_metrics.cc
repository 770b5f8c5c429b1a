#include "common/observe/rpc_metrics.h"

#include <absl/algorithm/container.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <optional>

#include "common/base/failure_reason.h"

namespace neuroshard {
namespace {

// Greedy plans take well under a millisecond, profiling streams many minutes.
const prometheus::Histogram::BucketBoundaries kDurationSeconds = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5,    1,     2.5,    5,     10,   30,    60,   300, 1800};

// Their times say how busy the server is, not how long its work takes.
constexpr FailureReason kShedReasons[] = {FailureReason::kOverloaded, FailureReason::kOverQuota,
                                          FailureReason::kDraining};

// The label of methods that are not ours.
constexpr char kOtherRpc[] = "other";

// The same family for the same registry.
prometheus::Family<prometheus::Counter>& Connections(prometheus::Registry& registry) {
  return prometheus::BuildCounter()
      .Name("neuroshard_rpc_connections_total")
      .Help(
          "Connections of clients: accepted, refused beyond the limit, or reset later for too many "
          "calls")
      .Register(registry);
}

}  // namespace

RpcMetrics::RpcMetrics(prometheus::Registry& registry)
    : requests_(prometheus::BuildCounter()
                    .Name("neuroshard_rpc_requests_total")
                    .Help("RPCs answered, by method and gRPC status code")
                    .Register(registry)),
      shed_(prometheus::BuildCounter()
                .Name("neuroshard_rpc_shed_total")
                .Help("RPCs refused because the server is overloaded, the caller is over its quota "
                      "or the server drains, by method")
                .Register(registry)),
      durations_(prometheus::BuildHistogram()
                     .Name("neuroshard_rpc_duration_seconds")
                     .Help("Time inside the handler, by method, without shed calls")
                     .Register(registry)),
      in_flight_(prometheus::BuildGauge()
                     .Name("neuroshard_rpc_in_flight")
                     .Help("RPCs being handled, by method")
                     .Register(registry)),
      in_flight_limit_(
          prometheus::BuildGauge()
              .Name("neuroshard_rpc_in_flight_limit")
              .Help("RPCs that may be handled at the same time; cheap ones do not count")
              .Register(registry)
              .Add({})),
      connections_accepted_(Connections(registry).Add({{"outcome", "accepted"}})),
      connections_refused_(Connections(registry).Add({{"outcome", "refused"}})),
      connections_reset_(Connections(registry).Add({{"outcome", "reset"}})),
      connections_(prometheus::BuildGauge()
                       .Name("neuroshard_rpc_connections")
                       .Help("Connections of clients that are open")
                       .Register(registry)
                       .Add({})),
      connections_limit_(prometheus::BuildGauge()
                             .Name("neuroshard_rpc_connections_limit")
                             .Help("Connections that may be open; more are refused")
                             .Register(registry)
                             .Add({})),
      tls_ends_(prometheus::BuildGauge()
                    .Name("neuroshard_tls_not_after_seconds")
                    .Help("Until when the server's certificate, and the last authority of its "
                          "callers, are valid, in seconds since 1970; none without TLS")
                    .Register(registry)),
      tls_reloads_failed_(
          prometheus::BuildCounter()
              .Name("neuroshard_tls_reload_failures_total")
              .Help("Readings of the files of TLS that found what cannot be used; the last good "
                    "ones stay in use")
              .Register(registry)
              .Add({})) {
  for (const auto code : {absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnimplemented}) {
    requests_.Add({{"rpc", kOtherRpc}, {"code", absl::StatusCodeToString(code)}});
  }
}

void RpcMetrics::Began(const std::string& rpc) { in_flight_.Add({{"rpc", rpc}}).Increment(); }

void RpcMetrics::Declare(const std::string& path, const std::string& rpc) {
  rpc_of_path_[path] = rpc;
  requests_.Add({{"rpc", rpc}, {"code", absl::StatusCodeToString(absl::StatusCode::kOk)}});
  for (const FailureReason reason : kShedReasons) {
    shed_.Add({{"rpc", rpc}, {"reason", std::string(ReasonText(reason))}});
  }
  durations_.Add({{"rpc", rpc}}, kDurationSeconds);
  in_flight_.Add({{"rpc", rpc}});
}

void RpcMetrics::SetLimit(int max_in_flight) { in_flight_limit_.Set(max_in_flight); }

void RpcMetrics::Ended(const std::string& rpc, const Status& status, double duration_seconds) {
  in_flight_.Add({{"rpc", rpc}}).Decrement();
  requests_.Add({{"rpc", rpc}, {"code", absl::StatusCodeToString(status.code())}}).Increment();
  const std::optional<FailureReason> reason = ReasonOf(status);
  if (reason.has_value() && absl::c_linear_search(kShedReasons, *reason)) {
    shed_.Add({{"rpc", rpc}, {"reason", std::string(ReasonText(*reason))}}).Increment();
  } else {
    durations_.Add({{"rpc", rpc}}, kDurationSeconds).Observe(duration_seconds);
  }
}

void RpcMetrics::RefusedOutside(std::string_view path, const Status& status) {
  const auto known = rpc_of_path_.find(path);
  requests_
      .Add({{"rpc", known == rpc_of_path_.end() ? kOtherRpc : known->second},
            {"code", absl::StatusCodeToString(status.code())}})
      .Increment();
}

void RpcMetrics::SetConnections(std::size_t open, int limit) {
  connections_.Set(static_cast<double>(open));
  connections_limit_.Set(limit);
}

void RpcMetrics::SetTlsEnds(double certificate_unix_s, double client_ca_unix_s) {
  tls_ends_.Add({{"file", "certificate"}}).Set(certificate_unix_s);
  tls_ends_.Add({{"file", "client_ca"}}).Set(client_ca_unix_s);
}

void RpcMetrics::TlsReloadFailed() { tls_reloads_failed_.Increment(); }

void RpcMetrics::ConnectionReset() { connections_reset_.Increment(); }

void RpcMetrics::Connection(bool accepted) {
  (accepted ? connections_accepted_ : connections_refused_).Increment();
}

}  // namespace neuroshard
