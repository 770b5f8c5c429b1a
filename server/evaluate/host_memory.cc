#include "server/evaluate/host_memory.h"

#include <algorithm>
#include <limits>

namespace neuroshard {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 2;

}  // namespace

HostMemory::HostMemory(const Topology& topology) : left_of_host_(topology.host_memory_bytes) {
  if (!present()) return;
  const std::vector<HostRanks> hosts = topology.hosts();
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    host_of_rank_.insert(host_of_rank_.end(), static_cast<std::size_t>(hosts[h].count),
                         static_cast<int>(h));
  }
  for (const Device& device : topology.devices) {
    left_of_rank_.push_back(device.max_host_memory_bytes == 0 ? kNoLimit
                                                              : device.max_host_memory_bytes);
  }
}

std::int64_t HostMemory::Left(int rank) const {
  if (!present()) return 0;
  const std::size_t r = static_cast<std::size_t>(rank);
  return std::min(left_of_rank_[r], left_of_host_[static_cast<std::size_t>(host_of_rank_[r])]);
}

void HostMemory::Add(int rank, std::int64_t bytes) {
  if (bytes == 0 || !present()) return;
  const std::size_t r = static_cast<std::size_t>(rank);
  left_of_rank_[r] -= bytes;
  left_of_host_[static_cast<std::size_t>(host_of_rank_[r])] -= bytes;
}

}  // namespace neuroshard
