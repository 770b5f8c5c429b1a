#include "worker/service/worker_metrics.h"

#include "common/observe/metric_families.h"

namespace neuroshard {
namespace {

std::string Label(MeasurementKind kind) { return std::string(ToText(kind)); }

// A sample takes from milliseconds (tiny tables) to minutes (the largest max_time_ms).
const prometheus::Histogram::BucketBoundaries kSecondsBuckets = {0.01, 0.03, 0.1, 0.3, 1,
                                                                 3,    10,   30,  100, 300};

}  // namespace

WorkerMetrics::WorkerMetrics(prometheus::Registry& registry)
    : samples_(FamilyOf(registry, prometheus::BuildCounter(), "neuroshard_worker_samples_total",
                        "Samples that came to an end")),
      seconds_(FamilyOf(registry, prometheus::BuildHistogram(),
                        "neuroshard_worker_measurement_seconds",
                        "Time from a sample's arrival on the device to its record")),
      open_groups_(OneGauge(registry, "neuroshard_worker_open_comm_groups",
                            "Communication groups that hold devices")),
      device_busy_(FamilyOf(registry, prometheus::BuildGauge(), "neuroshard_worker_device_busy",
                            "1 while the device is leased")),
      device_process_deaths_(FamilyOf(registry, prometheus::BuildCounter(),
                                      "neuroshard_worker_device_process_deaths_total",
                                      "Processes of a device that ended by themselves")) {
  for (const MeasurementKind kind : {MeasurementKind::kCompute, MeasurementKind::kComm}) {
    samples_.Add({{"kind", Label(kind)}, {"outcome", "ok"}});
    seconds_.Add({{"kind", Label(kind)}}, kSecondsBuckets);
  }
}

void WorkerMetrics::DeclareDevices(int count) {
  for (int device = 0; device < count; ++device) {
    device_busy_.Add({{"device", std::to_string(device)}});
    device_process_deaths_.Add({{"device", std::to_string(device)}});
  }
}

void WorkerMetrics::SampleEnded(MeasurementKind kind, const std::string& outcome,
                                double duration_seconds) {
  samples_.Add({{"kind", Label(kind)}, {"outcome", outcome}}).Increment();
  seconds_.Add({{"kind", Label(kind)}}, kSecondsBuckets).Observe(duration_seconds);
}

void WorkerMetrics::SetOpenGroups(int open_groups) { open_groups_.Set(open_groups); }

void WorkerMetrics::DeviceProcessDied(int device) {
  device_process_deaths_.Add({{"device", std::to_string(device)}}).Increment();
}

void WorkerMetrics::SetDeviceBusy(int device, bool busy) {
  device_busy_.Add({{"device", std::to_string(device)}}).Set(busy ? 1 : 0);
}

}  // namespace neuroshard
