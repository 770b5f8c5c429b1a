// A set of ranks of a topology, and the hosts that it touches.
#pragma once

#include <vector>

#include "common/domain/topology.h"

namespace neuroshard {

// A set of ranks with the hosts that it touches or fills. Immutable.
class RankSet {
 public:
  // has[rank] for each rank of the topology; `hosts` are Topology::hosts().
  RankSet(const std::vector<HostRanks>& hosts, std::vector<bool> has);

  bool contains(int rank) const { return has_[static_cast<std::size_t>(rank)]; }
  const std::vector<bool>& has() const { return has_; }
  const std::vector<int>& ranks() const { return ranks_; }  // ascending
  // Hosts, as positions in Topology::hosts(), ascending: with one rank at least, and with all.
  const std::vector<int>& hosts() const { return hosts_; }
  const std::vector<int>& whole_hosts() const { return whole_hosts_; }
  // The most ranks that one host has.
  int most_of_a_host() const { return most_of_a_host_; }
  // Ranks of the smallest host that it has whole; 0: there is none.
  int fewest_of_a_whole_host() const { return fewest_of_a_whole_host_; }
  bool all() const { return ranks_.size() == has_.size(); }

 private:
  std::vector<bool> has_;
  std::vector<int> ranks_;
  std::vector<int> hosts_;
  std::vector<int> whole_hosts_;
  int most_of_a_host_ = 0;
  int fewest_of_a_whole_host_ = 0;
};

}  // namespace neuroshard
