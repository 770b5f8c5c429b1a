// Lowest place: the greedy choice of where a unit goes, the allowed rank, host or subset of ranks
// with the lowest value. Ties: the one that comes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "server/search/core/shard_table.h"
#include "server/search/refine/solution/solution.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// The unit, of Spread::kRank, on one of `ranks`. value_ms: by rank. allowed(unit) is asked only of
// ranks that are lower than all before.
template <typename Ranks, typename Allowed>
std::optional<Unit> OnLowestRank(Unit unit, const Ranks& ranks, std::span<const double> value_ms,
                                 const Allowed& allowed) {
  std::optional<Unit> best;
  double lowest_ms = std::numeric_limits<double>::infinity();
  for (const int rank : ranks) {
    const double rank_ms = value_ms[static_cast<std::size_t>(rank)];
    if (rank_ms >= lowest_ms) continue;
    unit.place = rank;
    if (!allowed(unit)) continue;
    best = unit;
    lowest_ms = rank_ms;
  }
  return best;
}

// The largest value on a host.
inline double HostValueMs(const HostRanks& host, std::span<const double> value_ms) {
  const auto of_host =
      value_ms.subspan(static_cast<std::size_t>(host.first), static_cast<std::size_t>(host.count));
  return *std::max_element(of_host.begin(), of_host.end());
}

// The unit, of Spread::kHost, on one of `hosts`, by the largest value there.
template <typename Hosts, typename Allowed>
std::optional<Unit> OnLowestHost(Unit unit, const Hosts& hosts, std::span<const double> value_ms,
                                 const Solution& solution, ShardTable& shard_table,
                                 const Allowed& allowed) {
  std::optional<Unit> best;
  double lowest_ms = std::numeric_limits<double>::infinity();
  for (const int host : hosts) {
    const double host_ms = HostValueMs(solution.host(host), value_ms);
    if (host_ms >= lowest_ms) continue;
    unit.place = host;
    unit.shards = shard_table.Shards(unit.table, unit.type, unit.cols, solution.host(host).count,
                                     unit.residency);
    if (!allowed(unit)) continue;
    best = unit;
    lowest_ms = host_ms;
  }
  return best;
}

// The unit, of Spread::kSubset with its shards, on the lowest of `ranks` (ascending), all allowed.
inline std::optional<Unit> OnLowestSubset(Unit unit, std::vector<int> ranks,
                                          std::span<const double> value_ms, Solution& solution) {
  const std::size_t holders = static_cast<std::size_t>(unit.shards.count);
  if (ranks.size() < holders) return std::nullopt;
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return value_ms[static_cast<std::size_t>(a)] < value_ms[static_cast<std::size_t>(b)];
  });
  ranks.resize(holders);
  std::sort(ranks.begin(), ranks.end());
  unit.place = solution.AddSubset(std::move(ranks));
  return unit;
}

}  // namespace neuroshard
