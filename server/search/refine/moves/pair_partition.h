// Pair partition: how two ranks, or two hosts, share out anew what they hold together.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// What may be on either side, by what it takes there.
struct PartitionItem {
  std::array<double, 2> ms = {};
  std::array<TierBytes, 2> bytes = {};
};

// A side without the items.
struct PartitionSide {
  double ms = 0;
  TierBytes room = {};
};

struct PartitionResult {
  std::optional<std::vector<std::size_t>> sides;  // by item
  std::size_t nodes = 0;                          // that were looked at
};

// The partition whose slower side takes least, of those for which both sides have room, by limited
// discrepancy search (Harvey and Ginsberg, 1995): the largest items are placed first, each on the
// side where it takes the smaller share of the memory that is left or makes the shorter time, but
// for 0, 1, 2, ... of them. Looks at `max_nodes` nodes at most, each of which takes constant time,
// besides sorting the items. No sides: none was found that takes less than `below_ms`.
PartitionResult PartitionPair(std::span<const PartitionItem> items,
                              const std::array<PartitionSide, 2>& sides, double below_ms,
                              std::size_t max_nodes);

}  // namespace neuroshard
