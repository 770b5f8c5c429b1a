#include "worker/measure/record_stamp.h"

#include <fmt/format.h>

#include <utility>

namespace neuroshard {

std::string DescribeSettings(const MeasurementSettings& settings) {
  return fmt::format(
      "warmup_iterations={} min_iterations={} max_iterations={} target_relative_error={} "
      "max_time_ms={} flush_cache={}",
      settings.warmup_iterations, settings.min_iterations, settings.max_iterations,
      settings.target_relative_error, settings.max_time_ms, settings.flush_cache);
}

RecordStamp::RecordStamp(HostIdentity host, std::function<std::int64_t()> unix_time_ms)
    : host_(std::move(host)), unix_time_ms_(std::move(unix_time_ms)) {}

MeasurementEnvironment RecordStamp::Make(const DeviceProperties& device,
                                         const MeasurementSettings& settings,
                                         const std::map<std::string, std::string>& more) const {
  MeasurementEnvironment environment{.worker_version = host_.worker_version,
                                     .git_commit = host_.git_commit,
                                     .hostname = host_.hostname,
                                     .device = device.name,
                                     .backend = device.backend,
                                     .properties = host_.environment,
                                     .measured_at_unix_ms = unix_time_ms_()};
  for (const auto& [key, value] : device.details) environment.properties[key] = value;
  environment.properties["device_memory_bytes"] = std::to_string(device.memory_bytes);
  environment.properties["settings"] = DescribeSettings(settings);
  for (const auto& [key, value] : more) environment.properties[key] = value;
  return environment;
}

}  // namespace neuroshard
