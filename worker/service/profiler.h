// Profiler: the worker without RPCs. Measures samples on leased devices and on comm groups.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/measurement.h"
#include "worker/device/comm_group_registry.h"
#include "worker/device/device_inventory.h"
#include "worker/measure/record_stamp.h"
#include "worker/service/worker_metrics.h"

namespace neuroshard {

// Thread-safe. Everything given to the constructor must outlive it; metrics may be null.
class Profiler {
 public:
  // One device, held until the job is destroyed. Calls of one job do not overlap.
  class ComputeJob {
   public:
    // Blocks until the record is there. INVALID_ARGUMENT (field paths relative to the sample),
    // CANCELLED at the next iteration after `stop` stopped; the job can go on with another sample.
    StatusOr<ComputeMeasurement> Measure(const ComputeSample& sample, const StopSignal& stop);

   private:
    friend class Profiler;
    ComputeJob(Profiler& profiler, DeviceLease lease, const MeasurementSettings& settings)
        : profiler_(profiler), lease_(std::move(lease)), settings_(settings) {}

    Profiler& profiler_;
    DeviceLease lease_;
    const MeasurementSettings settings_;
  };

  Profiler(DeviceInventory& inventory, CommGroupRegistry& groups, HostIdentity host,
           const Clock& clock, WorkerMetrics* metrics);

  // RESOURCE_EXHAUSTED when the device is busy, NOT_FOUND when there is none; `job` is what others
  // are told who holds the device.
  StatusOr<std::unique_ptr<ComputeJob>> StartCompute(int device, const std::string& job,
                                                     const MeasurementSettings& settings);

  // One record a local rank. INVALID_ARGUMENT with field paths relative to the sample when it does
  // not suit the group, NOT_FOUND without such a group, PERMISSION_DENIED with a token that is not
  // its own, ABORTED when the group broke (it is closed
  // then).
  StatusOr<std::vector<CommMeasurement>> MeasureComm(const CommGroupKey& group,
                                                     const CommSample& sample,
                                                     const MeasurementSettings& settings,
                                                     const StopSignal& stop);

  CommGroupRegistry& groups() { return groups_; }
  std::vector<DeviceDescription> Devices() const { return inventory_.Describe(); }
  const HostIdentity& host() const { return host_; }

 private:
  void Record(MeasurementKind kind, TimePoint begin, const Status& status, Outcome outcome);

  DeviceInventory& inventory_;
  CommGroupRegistry& groups_;
  const HostIdentity host_;
  const Clock& clock_;
  WorkerMetrics* const metrics_;
};

}  // namespace neuroshard
