// Metrics of measuring, for the operator.
//   neuroshard_worker_samples_total{kind,outcome}   samples that came to an end; outcome: ok,
//                                                   out_of_memory, cancelled, error
//   neuroshard_worker_measurement_seconds{kind}     histogram: one sample from its arrival on the
//                                                   device to its record
//   neuroshard_worker_open_comm_groups              gauge
//   neuroshard_worker_device_busy{device}           gauge: 1 while the device is leased
//   neuroshard_worker_device_process_deaths_total{device}
//                                                   processes of the device that ended by themselves
#pragma once

#include <string>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
template <typename T>
class Family;
}  // namespace prometheus

namespace neuroshard {

// The label `kind`.
enum class MeasurementKind { kCompute, kComm };

// Thread-safe.
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
