// Sums of bytes and sizes of flow networks in the proofs of this folder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace neuroshard {

// Stands for "more than anything": two of them add up inside int64.
inline constexpr std::int64_t kMaxFlow = std::int64_t{1} << 61;
// Edges of a flow network: above, a proof would take seconds.
inline constexpr std::size_t kMaxFlowEdges = 2'000'000;

inline std::int64_t CappedSum(std::int64_t a, std::int64_t b) { return std::min(kMaxFlow, a + b); }

}  // namespace neuroshard
