#include "common/domain/host_memory.h"

#include <algorithm>
#include <limits>

namespace neuroshard {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::int64_t kMaxRoom = std::int64_t{1} << 61;

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

HostBytes AllHostBytes(const Topology& topology) {
  const std::vector<HostRanks> hosts = topology.hosts();
  const auto sum = [&](const std::vector<std::int64_t>& of_hosts, std::int64_t Device::*limit) {
    std::int64_t all = 0;
    for (std::size_t h = 0; h < of_hosts.size(); ++h) {
      std::int64_t most = 0;
      for (int r = hosts[h].first; r < hosts[h].first + hosts[h].count; ++r) {
        const std::int64_t of_rank = topology.devices[static_cast<std::size_t>(r)].*limit;
        most = std::min(kMaxRoom, most + (of_rank == 0 ? kMaxRoom : of_rank));
      }
      all = std::min(kMaxRoom, all + std::min(most, of_hosts[h]));
    }
    return all;
  };
  return {sum(topology.host_memory_bytes, &Device::max_host_memory_bytes),
          sum(topology.ssd_bytes, &Device::max_ssd_bytes)};
}

}  // namespace neuroshard
