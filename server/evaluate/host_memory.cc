#include "server/evaluate/host_memory.h"

#include <limits>

namespace neuroshard {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 2;

}  // namespace

HostMemory::HostMemory(const Topology& topology)
    : memory_{topology.host_memory_bytes, {}}, ssd_{topology.ssd_bytes, {}} {
  if (topology.host_memory_bytes.empty() && topology.ssd_bytes.empty()) return;
  const std::vector<HostRanks> hosts = topology.hosts();
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    host_of_rank_.insert(host_of_rank_.end(), static_cast<std::size_t>(hosts[h].count),
                         static_cast<int>(h));
  }
  const auto limit = [](std::int64_t most) { return most == 0 ? kNoLimit : most; };
  for (const Device& device : topology.devices) {
    memory_.left_of_rank.push_back(limit(device.max_host_memory_bytes));
    ssd_.left_of_rank.push_back(limit(device.max_ssd_bytes));
  }
}

}  // namespace neuroshard
