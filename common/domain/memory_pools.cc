#include "common/domain/memory_pools.h"

#include <limits>

#include "common/domain/memory_use.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::int64_t kMaxRoom = std::int64_t{1} << 61;

}  // namespace

MemoryPools::MemoryPools(const PlanRequest& request)
    : host_of_rank_(Mapped(request.topology.devices, &Device::host)) {
  const Topology& topology = request.topology;
  for (const Device& device : topology.devices) {
    pools_[MemoryTier::kDevice].left_of_rank.push_back(
        device.memory_bytes - ReserveBytes(request.memory, device.memory_bytes));
  }
  for (const SharedMemory& memory : kSharedMemories) {
    Pool& pool = pools_[memory.tier];
    pool.left_of_host = topology.*memory.of_hosts;
    if (pool.left_of_host.empty()) continue;
    has_shared_ = true;
    for (const Device& device : topology.devices) {
      const std::int64_t most = device.*memory.most;
      pool.left_of_rank.push_back(most == 0 ? kNoLimit : most);
    }
  }
}

TierBytes SharedBytes(const Topology& topology) {
  const std::vector<HostRanks> hosts = topology.hosts();
  TierBytes all = {};
  for (const SharedMemory& memory : kSharedMemories) {
    const std::vector<std::int64_t>& of_hosts = topology.*memory.of_hosts;
    for (std::size_t h = 0; h < of_hosts.size(); ++h) {
      std::int64_t most = 0;
      for (int r = hosts[h].first; r < hosts[h].first + hosts[h].count; ++r) {
        const std::int64_t of_rank = topology.devices[static_cast<std::size_t>(r)].*memory.most;
        most = std::min(kMaxRoom, most + (of_rank == 0 ? kMaxRoom : of_rank));
      }
      all[memory.tier] = std::min(kMaxRoom, all[memory.tier] + std::min(most, of_hosts[h]));
    }
  }
  return all;
}

}  // namespace neuroshard
