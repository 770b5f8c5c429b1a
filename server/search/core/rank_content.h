// Content of a rank as a hash: what costs are remembered by.
#pragma once

#include <cstdint>

#include "common/base/hash.h"

namespace neuroshard {

// What a rank holds, as a 64-bit hash of ids of a ShardTable. Two of n contents share a value with
// probability n^2 / 2^65, below 1e-7 for a million; a search would then misjudge one placement, and
// still price its plan right.
using RankContent = std::uint64_t;

inline constexpr RankContent kNoContent = 0;

// What the kind of a rank (BoundCostModel) adds where costs of kinds are remembered together; 0 for
// kind 0.
constexpr RankContent ContentOfKind(int kind) {
  return MixBits(~kGoldenGamma * static_cast<std::uint64_t>(kind));
}

// What one shard adds to a content in which order does not matter; subtracting takes it away again.
// For sums in doubles, which show no order: moves that are undone find their costs again.
constexpr RankContent ContentOf(int shard) {
  return MixBits(kGoldenGamma * (static_cast<std::uint64_t>(shard) + 1));
}

// The content after one more shard where order matters, as it does for sums of floats.
constexpr RankContent AddToContent(RankContent content, int shard) {
  const std::uint64_t mixed =
      MixBits(content + kGoldenGamma * (static_cast<std::uint64_t>(shard) + 1));
  return mixed == kNoContent ? 1 : mixed;
}

}  // namespace neuroshard
