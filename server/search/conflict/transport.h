// Transport problem: can suppliers send all they have to sinks with limited room?
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace neuroshard {

// Edges of a flow network: above, a proof would take seconds.
inline constexpr std::size_t kMaxFlowEdges = 2'000'000;

struct Supplier {
  std::int64_t supply = 0;
  // Whom it may send to; must outlive the call.
  const std::vector<int>* sinks = nullptr;
};

// nullopt: they can. Otherwise suppliers (ascending) that have more than all their sinks together
// have room for; with `most_per_pair`, more than those sinks would take from them at that much a
// pair. Integer maximum flow by Dinic's method; the violating set is the source's side of the
// minimum cut (Hall's condition). Nothing overflows while supplies and rooms are at most 2^62.
std::optional<std::vector<std::size_t>> FindOverfull(const std::vector<Supplier>& suppliers,
                                                     const std::vector<std::int64_t>& room,
                                                     std::int64_t most_per_pair);

}  // namespace neuroshard
