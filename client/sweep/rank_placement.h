// Placement of ranks on the devices of workers.
#pragma once

#include <optional>
#include <vector>

namespace neuroshard {

// The device that plays a rank.
struct RankPlacement {
  int worker = 0;  // position in the list of workers
  int device = 0;  // WorkerDevice.index

  bool operator==(const RankPlacement&) const = default;
};

// Ranks go round the workers, so that neighbours live in different processes and a group crosses as
// many processes as it can. devices[w] are the usable devices of worker w. nullopt when there are
// fewer than num_ranks.
std::optional<std::vector<RankPlacement>> PlaceRanks(const std::vector<std::vector<int>>& devices,
                                                     int num_ranks);

}  // namespace neuroshard
