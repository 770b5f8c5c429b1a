// The circumstances of a measurement, for its record: the identity of worker and host, which stays
// while the process lives, the device, and the settings.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "common/domain/measurement.h"
#include "kernels/api/device_backend.h"

namespace neuroshard {

// Build and host name of this process, with the properties "os", "kernel", "cpu_governor" and
// "cpus" of its host. Reads /etc/os-release, uname and /sys; what cannot be read is left out.
MeasurementEnvironment IdentifyHost();

// Makes the part of a record that says where and how it was measured. Immutable; safe for
// concurrent use when `unix_time_ms` is.
class RecordStamp {
 public:
  // `unix_time_ms`: the wall clock, milliseconds since the Unix epoch.
  RecordStamp(MeasurementEnvironment host, std::function<std::int64_t()> unix_time_ms)
      : host_(std::move(host)), unix_time_ms_(std::move(unix_time_ms)) {}

  // Properties are, later ones winning: the host's, the device's details, the settings,
  // `more`. Stamped with the time of the call, so call it when the measurement has ended.
  MeasurementEnvironment Make(const DeviceProperties& device, const MeasurementSettings& settings,
                              const std::map<std::string, std::string>& more) const;

 private:
  const MeasurementEnvironment host_;
  const std::function<std::int64_t()> unix_time_ms_;
};

}  // namespace neuroshard
