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

// Build, host name and operating system of this process.
struct HostIdentity {
  std::string worker_version;
  std::string git_commit;
  std::string hostname;
  // "os", "kernel", "cpu_governor", "cpus", ... as far as the system tells.
  std::map<std::string, std::string> environment;
};

// Reads /etc/os-release, uname and /sys. What cannot be read is left out.
HostIdentity IdentifyHost();

// Makes the part of a record that says where and how it was measured. Immutable; safe for
// concurrent use when `unix_time_ms` is.
class RecordStamp {
 public:
  // `unix_time_ms`: the wall clock, milliseconds since the Unix epoch.
  RecordStamp(HostIdentity host, std::function<std::int64_t()> unix_time_ms)
      : host_(std::move(host)), unix_time_ms_(std::move(unix_time_ms)) {}

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
