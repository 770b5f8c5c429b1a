// The content of a rank as a hash, the key of remembered costs.
#pragma once

#include <cstdint>

#include "common/base/hash.h"

namespace neuroshard {

// The shards of a rank as a 64-bit hash of their ids in a ShardTable. Two of n contents collide
// with probability n^2 / 2^65, below 1e-7 for a million; a search would then misjudge one
// placement, and still price its plan right.
using RankContent = std::uint64_t;

inline constexpr RankContent kNoContent = 0;

// Returns the part of a content for the rank's kind (BoundCostModel), where costs of several kinds
// are remembered together; 0 for kind 0.
constexpr RankContent ContentOfKind(int kind) {
  return MixBits(~kGoldenGamma * static_cast<std::uint64_t>(kind));
}

// Returns what one shard adds to a content without order; subtracting it removes the shard, so that
// undone moves find their costs again. For sums in doubles, which hide the order.
constexpr RankContent ContentOf(int shard) {
  return MixBits(kGoldenGamma * (static_cast<std::uint64_t>(shard) + 1));
}

// Returns the content after one more shard, where order matters, as for sums of floats.
constexpr RankContent AddToContent(RankContent content, int shard) {
  const std::uint64_t mixed =
      MixBits(content + kGoldenGamma * (static_cast<std::uint64_t>(shard) + 1));
  return mixed == kNoContent ? 1 : mixed;
}

}  // namespace neuroshard
