#include "common/observe/server_metrics.h"

#include <absl/algorithm/container.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "common/base/build_info.h"
#include "common/base/failure_reason.h"
#include "common/observe/metric_families.h"

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

prometheus::Family<prometheus::Counter>& Connections(prometheus::Registry& registry) {
  return FamilyOf(registry, prometheus::BuildCounter(), "neuroshard_rpc_connections_total",
                  "Connections of clients: accepted, refused beyond the limit, or reset later for "
                  "too many calls");
}

// proc(5), /proc/pid/stat; fields are counted from 1 there.
struct ProcessStat {
  double cpu_ticks = 0;       // 14 and 15
  double threads = 0;         // 20
  double start_ticks = 0;     // 22, since the machine started
  double virtual_bytes = 0;   // 23
  double resident_pages = 0;  // 24
};

bool ReadProcessStat(ProcessStat& stat) {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The second field is the program's name in parentheses, with anything in it.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream fields(text.substr(name_end + 1));
  std::vector<std::string> words((std::istream_iterator<std::string>(fields)),
                                 std::istream_iterator<std::string>());
  constexpr int kFirst = 3;
  if (words.size() + kFirst <= 24) return false;
  const auto field = [&](int number) { return std::stod(words[number - kFirst]); };
  stat = {field(14) + field(15), field(20), field(22), field(23), field(24)};
  return true;
}

// Unix time; 0: not known.
double MachineStartSeconds() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::stod(line.substr(6));
  }
  return 0;
}

}  // namespace

RpcMetrics::RpcMetrics(prometheus::Registry& registry)
    : requests_(FamilyOf(registry, prometheus::BuildCounter(), "neuroshard_rpc_requests_total",
                         "RPCs answered, by method and gRPC status code")),
      shed_(FamilyOf(registry, prometheus::BuildCounter(), "neuroshard_rpc_shed_total",
                     "RPCs refused because the server is overloaded, the caller is over its quota "
                     "or the server drains, by method")),
      durations_(FamilyOf(registry, prometheus::BuildHistogram(), "neuroshard_rpc_duration_seconds",
                          "Time inside the handler, by method, without shed calls")),
      in_flight_(FamilyOf(registry, prometheus::BuildGauge(), "neuroshard_rpc_in_flight",
                          "RPCs being handled, by method")),
      in_flight_limit_(
          OneGauge(registry, "neuroshard_rpc_in_flight_limit",
                   "RPCs that may be handled at the same time; cheap ones do not count")),
      connections_accepted_(Connections(registry).Add({{"outcome", "accepted"}})),
      connections_refused_(Connections(registry).Add({{"outcome", "refused"}})),
      connections_reset_(Connections(registry).Add({{"outcome", "reset"}})),
      connections_(
          OneGauge(registry, "neuroshard_rpc_connections", "Connections of clients that are open")),
      connections_limit_(OneGauge(registry, "neuroshard_rpc_connections_limit",
                                  "Connections that may be open; more are refused")),
      tls_ends_(FamilyOf(registry, prometheus::BuildGauge(), "neuroshard_tls_not_after_seconds",
                         "Until when the server's certificate, and the last authority of its "
                         "callers, are valid, in seconds since 1970; none without TLS")),
      tls_reloads_failed_(OneCounter(registry, "neuroshard_tls_reload_failures_total",
                                     "Readings of the files of TLS that found what cannot be used; "
                                     "the last good ones stay in use")) {
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

std::vector<prometheus::MetricFamily> CollectProcessMetrics() {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&families](const char* name, const char* help, double value,
                               MetricType type = MetricType::Gauge) {
    prometheus::MetricFamily& family = families.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  };
  ProcessStat stat;
  if (ReadProcessStat(stat)) {
    const auto ticks_a_second = static_cast<double>(sysconf(_SC_CLK_TCK));
    add("process_cpu_seconds_total", "User and system CPU time spent",
        stat.cpu_ticks / ticks_a_second, MetricType::Counter);
    add("process_start_time_seconds", "When the process started, Unix time",
        MachineStartSeconds() + stat.start_ticks / ticks_a_second);
    add("process_resident_memory_bytes", "Resident memory",
        stat.resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
    add("process_virtual_memory_bytes", "Virtual memory", stat.virtual_bytes);
    add("process_threads", "Threads", stat.threads);
  }
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  if (!error) add("process_open_fds", "Open descriptors", count);
  if (rlimit limit{}; getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    add("process_max_fds", "Descriptors that may be open", static_cast<double>(limit.rlim_cur));
  }
  add("neuroshard_build_info", "Version and commit of the program", 1);
  families.back().metric.front().label = {{"version", BuildVersion()},
                                          {"commit", BuildGitCommit()}};
  return families;
}

}  // namespace neuroshard
