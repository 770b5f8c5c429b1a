// Metrics that every RPC server has. Labels are bounded: rpc is a method name of ours, code a gRPC
// status code.
//   neuroshard_rpc_requests_total{rpc,code}   calls answered, shed ones too
//   neuroshard_rpc_shed_total{rpc,reason}     calls refused or ended for the server's sake:
//                                             OVERLOADED (of a worker also: the device is leased),
//                                             DRAINING
//   neuroshard_rpc_duration_seconds{rpc}      histogram, from the handler's begin to its end, of
//                                             calls that were not shed
//   neuroshard_rpc_in_flight{rpc}             calls being handled
//   neuroshard_rpc_in_flight_limit            what counted calls may be together
//   neuroshard_rpc_connections_total{outcome} connections accepted, and refused beyond the limit
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
template <typename T>
class Family;
}  // namespace prometheus

namespace neuroshard {

// Thread-safe.
class RpcMetrics {
 public:
  // `registry` must outlive this.
  explicit RpcMetrics(prometheus::Registry& registry);

  // The series of a method are there, at 0, before its first call.
  void Declare(const std::string& rpc);
  void SetLimit(int max_in_flight);
  void Began(const std::string& rpc);
  void Ended(const std::string& rpc, const Status& status, double duration_seconds);
  void Connection(bool accepted);

 private:
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& shed_;
  prometheus::Family<prometheus::Histogram>& durations_;
  prometheus::Family<prometheus::Gauge>& in_flight_;
  prometheus::Gauge& in_flight_limit_;
  prometheus::Counter& connections_accepted_;
  prometheus::Counter& connections_refused_;
};

}  // namespace neuroshard
