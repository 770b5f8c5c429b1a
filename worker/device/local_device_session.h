// A device driven by a thread of this process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/api/device_backend.h"
#include "worker/device/device_executor.h"
#include "worker/device/device_session.h"
#include "worker/measure/record_stamp.h"
#include "worker/measure/timekeeper.h"

namespace neuroshard {

// A device to be made. `create` runs on the device's own thread.
struct DeviceSpec {
  std::function<StatusOr<std::unique_ptr<DeviceBackend>>()> create;
  std::optional<int> core;  // of the device's thread
};

// The backend and its communicators are made, used and destroyed on the device's thread.
class LocalDeviceSession final : public DeviceSession {
 public:
  // Stamp and time must outlive the session.
  static StatusOr<std::unique_ptr<LocalDeviceSession>> Open(const DeviceSpec& spec,
                                                            const RecordStamp& stamp,
                                                            const Timekeeper& time);
  ~LocalDeviceSession() override;

  const DeviceProperties& properties() const override { return properties_; }
  // UNAVAILABLE once the backend has an error that only a new process gets rid of.
  Status Prepare() override;
  StatusOr<ComputeMeasurement> MeasureCompute(const ComputeSample& sample,
                                              const MeasurementSettings& settings,
                                              const StopSignal& stop) override;
  StatusOr<std::string> OpenRank(const CommunicatorSpec& spec) override;
  Status ConnectRank(const std::vector<RankAddress>& addresses) override;
  StatusOr<CommMeasurement> MeasureComm(const CommSample& sample,
                                        const MeasurementSettings& settings,
                                        const StopSignal& stop) override;
  void CloseRank() override;
  void CutOff() override;

 private:
  LocalDeviceSession(std::optional<int> core, const RecordStamp& stamp, const Timekeeper& time)
      : stamp_(stamp), time_(time), executor_(core) {}

  const RecordStamp& stamp_;
  const Timekeeper& time_;
  DeviceProperties properties_;
  std::unique_ptr<DeviceBackend> backend_;
  Mutex ends_mutex_;  // the rank's ends against CutOff; never held for long
  std::unique_ptr<PendingCommunicator> pending_ NS_GUARDED_BY(ends_mutex_);
  std::unique_ptr<Communicator> communicator_ NS_GUARDED_BY(ends_mutex_);
  DeviceExecutor executor_;  // last: its work uses everything above
};

}  // namespace neuroshard
