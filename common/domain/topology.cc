#include "common/domain/topology.h"

namespace neuroshard {

std::vector<HostRanks> Topology::hosts() const {
  std::vector<HostRanks> hosts;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const std::size_t r = static_cast<std::size_t>(rank);
    if (rank == 0 || devices[r].host != devices[r - 1].host) hosts.push_back({rank, 0});
    ++hosts.back().count;
  }
  return hosts;
}

int Topology::ranks_per_host() const {
  const std::vector<HostRanks> all = hosts();
  if (all.empty()) return 0;
  for (const HostRanks& host : all) {
    if (host.count != all.front().count) return 0;
  }
  return all.front().count;
}

}  // namespace neuroshard
