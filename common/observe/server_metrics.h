// Metrics that every server has: of its RPCs, and of the process. Labels are bounded: rpc is a
// method name of ours, code a gRPC status code.
#pragma once

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/observe/prometheus_types.h"

namespace neuroshard {

// Metrics of an RPC server: RpcGate counts every call here, ConnectionAcceptor every connection.
// Thread-safe.
class RpcMetrics {
 public:
  // `registry` must outlive this.
  explicit RpcMetrics(prometheus::Registry& registry);

  // The series of a method, "/package.Service/Method" and its short name, are there, at 0, before
  // its first call. Not once there are calls.
  void Declare(const std::string& path, const std::string& rpc);
  void SetLimit(int max_in_flight);
  void Began(const std::string& rpc);
  void Ended(const std::string& rpc, const Status& status, double duration_seconds);
  void RefusedOutside(std::string_view path, const Status& status);
  void Connection(bool accepted);
  void ConnectionReset();
  void SetConnections(std::size_t open, int limit);
  // When the server's certificate and the last authority of its callers end. Of servers with TLS.
  void SetTlsEnds(double certificate_unix_s, double client_ca_unix_s);
  void TlsReloadFailed();

 private:
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& shed_;
  prometheus::Family<prometheus::Histogram>& durations_;
  prometheus::Family<prometheus::Gauge>& in_flight_;
  prometheus::Gauge& in_flight_limit_;
  prometheus::Counter& connections_accepted_;
  prometheus::Counter& connections_refused_;
  prometheus::Counter& connections_reset_;
  prometheus::Gauge& connections_;
  prometheus::Gauge& connections_limit_;
  prometheus::Family<prometheus::Gauge>& tls_ends_;
  prometheus::Counter& tls_reloads_failed_;
  std::map<std::string, std::string, std::less<>> rpc_of_path_;
};

// The process itself, with the names that Prometheus' client libraries give it:
//   process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes,
//   process_open_fds, process_max_fds, process_threads, process_start_time_seconds (Unix time)
// and neuroshard_build_info{version,commit}, which is 1. As of now, from /proc/self. What cannot be
// read is left out. Thread-safe.
std::vector<prometheus::MetricFamily> CollectProcessMetrics();

}  // namespace neuroshard
