// Identity of worker and host: the part of every record that does not change while the process
// lives.
#pragma once

#include <map>
#include <string>

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

}  // namespace neuroshard
