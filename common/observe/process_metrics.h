// Metrics of the process itself, with the names that Prometheus' client libraries give them:
//   process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes,
//   process_open_fds, process_max_fds, process_threads, process_start_time_seconds (Unix time)
// and neuroshard_build_info{version,commit}, which is 1.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace neuroshard {

// As of now, from /proc/self. What cannot be read is left out. Thread-safe.
std::vector<prometheus::MetricFamily> CollectProcessMetrics();

}  // namespace neuroshard
