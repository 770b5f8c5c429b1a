#include "worker/service/profiler.h"

#include "worker/measure/comm_measurement.h"
#include "worker/measure/compute_measurement.h"
#include "worker/measure/exchange_counts.h"

namespace neuroshard {

Profiler::Profiler(DeviceInventory& inventory, CommGroupRegistry& groups, const RecordStamp& stamp,
                   const Timekeeper& time, WorkerMetrics* metrics)
    : inventory_(inventory), groups_(groups), stamp_(stamp), time_(time), metrics_(metrics) {}

StatusOr<std::unique_ptr<Profiler::ComputeJob>> Profiler::StartCompute(
    int device, const std::string& job, const MeasurementSettings& settings) {
  NS_ASSIGN_OR_RETURN(DeviceLease lease, inventory_.Lease(device, job));
  return std::unique_ptr<ComputeJob>(new ComputeJob(*this, std::move(lease), settings));
}

StatusOr<ComputeMeasurement> Profiler::ComputeJob::Measure(const ComputeSample& sample,
                                                           const StopSignal& stop) {
  const TimePoint begin = profiler_.time_.Now();
  StatusOr<ComputeMeasurement> record =
      lease_
          .Run([&](DeviceBackend& device) {
            return MeasureCompute(device, sample, settings_, profiler_.stamp_, stop);
          })
          .get();
  profiler_.Record(MeasurementKind::kCompute, begin, record.status(),
                   record.ok() ? record->outcome : Outcome::kOk);
  return record;
}

StatusOr<std::vector<CommMeasurement>> Profiler::MeasureComm(const CommGroupKey& group,
                                                             const CommSample& sample,
                                                             const MeasurementSettings& settings,
                                                             const StopSignal& stop) {
  NS_ASSIGN_OR_RETURN(const CommGroupSpec spec, groups_.Spec(group));
  NS_RETURN_IF_ERROR(CheckCommSample(sample, spec.world_size, spec.timeout));

  const TimePoint begin = time_.Now();
  std::vector<CommMeasurement> records(spec.local_ranks.size());
  const Status status = groups_.Run(
      group,
      [&](int i, DeviceBackend& device, Communicator& communicator,
          const StopSignal& closing) -> Status {
        const EitherStop either(stop, closing);
        NS_ASSIGN_OR_RETURN(records[i],
                            ::neuroshard::MeasureComm(communicator, device.properties(), sample,
                                                      settings, stamp_, time_, either));
        return absl::OkStatus();
      },
      stop);
  Record(MeasurementKind::kComm, begin, status, records.front().outcome);
  NS_RETURN_IF_ERROR(status);
  return records;
}

void Profiler::Record(MeasurementKind kind, TimePoint begin, const Status& status,
                      Outcome outcome) {
  if (metrics_ == nullptr) return;
  std::string label(ToText(outcome));
  if (!status.ok()) label = absl::IsCancelled(status) ? "cancelled" : "error";
  metrics_->SampleEnded(kind, label, MillisecondsBetween(begin, time_.Now()) / 1e3);
}

}  // namespace neuroshard
