#include "client/sweep/rank_placement.h"

#include <cstddef>

namespace neuroshard {

std::optional<std::vector<RankPlacement>> PlaceRanks(const std::vector<std::vector<int>>& devices,
                                                     int num_ranks) {
  std::vector<RankPlacement> ranks;
  bool found = true;
  for (std::size_t round = 0; found; ++round) {
    found = false;
    for (std::size_t worker = 0; worker < devices.size(); ++worker) {
      if (static_cast<int>(ranks.size()) == num_ranks) return ranks;
      if (round >= devices[worker].size()) continue;
      ranks.push_back({static_cast<int>(worker), devices[worker][round]});
      found = true;
    }
  }
  if (static_cast<int>(ranks.size()) == num_ranks) return ranks;
  return std::nullopt;
}

}  // namespace neuroshard
