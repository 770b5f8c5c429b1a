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
  const auto is_alike = [&all](const HostRanks& host) { return host.count == all[0].count; };
  return !all.empty() && std::ranges::all_of(all, is_alike) ? all[0].count : 0;
}

}  // namespace neuroshard
