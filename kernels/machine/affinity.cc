#include "kernels/machine/affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace neuroshard {

std::vector<int> UsableCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

Status PinThisThread(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) {
    return InvalidArgument("cpu: must be in [0, {}), got {}", CPU_SETSIZE, cpu);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    return InvalidArgument("cpu: this process may not use CPU {}: {}", cpu, std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace neuroshard
