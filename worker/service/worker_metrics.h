// Metrics of measuring, besides those that every RPC server has; worker/README.md lists them.
#pragma once

#include <string>

#include "common/domain/vocabulary.h"
#include "common/observe/prometheus_types.h"

namespace neuroshard {

// The label `kind`.
enum class MeasurementKind { kCompute, kComm };

NS_WORDS(MeasurementKind, {kCompute, "compute"}, {kComm, "comm"});

// Counts samples, their durations, and what devices and groups are doing. Thread-safe.
class WorkerMetrics {
 public:
  // `registry` must outlive this.
  explicit WorkerMetrics(prometheus::Registry& registry);

  // The series of devices [0, count) are there, at 0, before anything happens.
  void DeclareDevices(int count);

  void SampleEnded(MeasurementKind kind, const std::string& outcome, double duration_seconds);
  void SetOpenGroups(int open_groups);
  void SetDeviceBusy(int device, bool busy);
  void DeviceProcessDied(int device);

 private:
  prometheus::Family<prometheus::Counter>& samples_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  prometheus::Gauge& open_groups_;
  prometheus::Family<prometheus::Gauge>& device_busy_;
  prometheus::Family<prometheus::Counter>& device_process_deaths_;
};

}  // namespace neuroshard
