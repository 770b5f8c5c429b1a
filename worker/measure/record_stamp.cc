#include "worker/measure/record_stamp.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <thread>

#include "common/base/build_info.h"

namespace neuroshard {
namespace {

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
std::string OperatingSystem() {
  std::ifstream file("/etc/os-release");
  constexpr std::string_view kKey = "PRETTY_NAME=";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    std::string value = line.substr(kKey.size());
    std::erase(value, '"');
    return value;
  }
  return "";
}

}  // namespace

MeasurementEnvironment IdentifyHost() {
  MeasurementEnvironment host;
  host.worker_version = BuildVersion();
  host.git_commit = BuildGitCommit();
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) host.hostname = name.data();

  const auto add = [&host](const char* key, const std::string& value) {
    if (!value.empty()) host.properties[key] = value;
  };
  add("os", OperatingSystem());
  if (utsname system{}; uname(&system) == 0) {
    add("kernel", std::string(system.sysname) + " " + system.release + " " + system.machine);
  }
  add("cpus", std::to_string(std::thread::hardware_concurrency()));
  add("cpu_governor", FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  return host;
}

MeasurementEnvironment RecordStamp::Make(const DeviceProperties& device,
                                         const MeasurementSettings& settings,
                                         const std::map<std::string, std::string>& more) const {
  MeasurementEnvironment environment = host_;
  environment.device = device.name;
  environment.backend = device.backend;
  environment.measured_at_unix_ms = unix_time_ms_();
  for (const auto& [key, value] : device.details) environment.properties[key] = value;
  environment.properties["device_memory_bytes"] = std::to_string(device.memory_bytes);
  environment.properties["settings"] = DescribeSettings(settings);
  for (const auto& [key, value] : more) environment.properties[key] = value;
  return environment;
}

}  // namespace neuroshard
