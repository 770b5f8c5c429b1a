// RecordStamp: the circumstances of a measurement, for its record.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "common/domain/measurement.h"
#include "kernels/api/device_backend.h"
#include "worker/measure/host_identity.h"

namespace neuroshard {

// The settings in one line: "warmup_iterations=3 min_iterations=5 ...".
std::string DescribeSettings(const MeasurementSettings& settings);

// Immutable; safe for concurrent use when `unix_time_ms` is.
class RecordStamp {
 public:
  // `unix_time_ms`: the wall clock, milliseconds since the Unix epoch.
  RecordStamp(HostIdentity host, std::function<std::int64_t()> unix_time_ms);

  const HostIdentity& host() const { return host_; }

  // Properties are, later ones winning: the host's environment, the device's details, the settings,
  // `more`. Stamped with the time of the call, so call it when the measurement has ended.
  MeasurementEnvironment Make(const DeviceProperties& device, const MeasurementSettings& settings,
                              const std::map<std::string, std::string>& more) const;

 private:
  const HostIdentity host_;
  const std::function<std::int64_t()> unix_time_ms_;
};

}  // namespace neuroshard
