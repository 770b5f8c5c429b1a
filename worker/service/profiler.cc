#include "worker/service/profiler.h"

#include "common/base/violations.h"
#include "common/domain/backend_names.h"
#include "worker/measure/exchange_counts.h"

namespace neuroshard {
namespace {

// Ids are put in order, and values cast, by kernels of this host, around exchanges that it sees.
Status CheckMeasures(const DeviceInventory& inventory, const CommGroupSpec& spec,
                     const CommSample& sample) {
  const bool casts = sample.casts();
  if (!sample.input_dist && !casts) return absl::OkStatus();
  Violations violations;
  for (const LocalRank& local : spec.local_ranks) {
    const std::string& backend = inventory.properties(local.device).collective_backend;
    if (backend == kNeuroshardTcp) continue;
    violations.Add(
        casts ? "wire_dtype" : "collective", "{} is measured by {} alone, and rank {} has {}",
        casts ? ToText(sample.wire_dtype) : kInputDistWord, kNeuroshardTcp, local.rank, backend);
  }
  return violations.ToStatus();
}

}  // namespace

Profiler::Profiler(DeviceInventory& inventory, CommGroupRegistry& groups, HostIdentity host,
                   const Clock& clock, WorkerMetrics* metrics)
    : inventory_(inventory),
      groups_(groups),
      host_(std::move(host)),
      clock_(clock),
      metrics_(metrics) {}

StatusOr<std::unique_ptr<Profiler::ComputeJob>> Profiler::StartCompute(
    int device, const std::string& job, const MeasurementSettings& settings) {
  NS_ASSIGN_OR_RETURN(DeviceLease lease, inventory_.Lease(device, job));
  return std::unique_ptr<ComputeJob>(new ComputeJob(*this, std::move(lease), settings));
}

StatusOr<ComputeMeasurement> Profiler::ComputeJob::Measure(const ComputeSample& sample,
                                                           const StopSignal& stop) {
  const TimePoint begin = profiler_.clock_.Now();
  StatusOr<ComputeMeasurement> record = lease_->MeasureCompute(sample, settings_, stop);
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
  NS_RETURN_IF_ERROR(CheckMeasures(inventory_, spec, sample));

  const TimePoint begin = clock_.Now();
  StatusOr<std::vector<CommMeasurement>> records = groups_.Measure(group, sample, settings, stop);
  Record(MeasurementKind::kComm, begin, records.status(),
         records.ok() ? records->front().outcome : Outcome::kOk);
  return records;
}

void Profiler::Record(MeasurementKind kind, TimePoint begin, const Status& status,
                      Outcome outcome) {
  if (metrics_ == nullptr) return;
  std::string label(ToText(outcome));
  if (!status.ok()) label = absl::IsCancelled(status) ? "cancelled" : "error";
  metrics_->SampleEnded(kind, label, MillisecondsBetween(begin, clock_.Now()) / 1e3);
}

}  // namespace neuroshard
