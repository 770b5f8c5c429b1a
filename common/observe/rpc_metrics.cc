#include "common/observe/rpc_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

namespace neuroshard {
namespace {

// Greedy plans take well under a millisecond, profiling streams many minutes.
const prometheus::Histogram::BucketBoundaries kDurationSeconds = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5,    1,     2.5,    5,     10,   30,    60,   300, 1800};

// The same family for the same registry.
prometheus::Family<prometheus::Counter>& Connections(prometheus::Registry& registry) {
  return prometheus::BuildCounter()
      .Name("neuroshard_rpc_connections_total")
      .Help("Connections of clients: accepted, or refused beyond the limit")
      .Register(registry);
}

}  // namespace

RpcMetrics::RpcMetrics(prometheus::Registry& registry)
    : requests_(prometheus::BuildCounter()
                    .Name("neuroshard_rpc_requests_total")
                    .Help("RPCs answered, by method and gRPC status code")
                    .Register(registry)),
      durations_(prometheus::BuildHistogram()
                     .Name("neuroshard_rpc_duration_seconds")
                     .Help("Time inside the handler, by method")
                     .Register(registry)),
      in_flight_(prometheus::BuildGauge()
                     .Name("neuroshard_rpc_in_flight")
                     .Help("RPCs being handled, by method")
                     .Register(registry)),
      connections_accepted_(Connections(registry).Add({{"outcome", "accepted"}})),
      connections_refused_(Connections(registry).Add({{"outcome", "refused"}})) {}

void RpcMetrics::Began(const std::string& rpc) { in_flight_.Add({{"rpc", rpc}}).Increment(); }

void RpcMetrics::Ended(const std::string& rpc, absl::StatusCode code, double duration_seconds) {
  in_flight_.Add({{"rpc", rpc}}).Decrement();
  requests_.Add({{"rpc", rpc}, {"code", absl::StatusCodeToString(code)}}).Increment();
  durations_.Add({{"rpc", rpc}}, kDurationSeconds).Observe(duration_seconds);
}

void RpcMetrics::Connection(bool accepted) {
  (accepted ? connections_accepted_ : connections_refused_).Increment();
}

}  // namespace neuroshard
