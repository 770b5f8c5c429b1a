// Lowest place: the greedy choice of where a unit goes, the allowed rank, host or subset of ranks
// with the lowest value. Ties: the one that comes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/positions.h"
#include "server/search/core/shard_table.h"
#include "server/search/refine/solution/solution.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// The largest value on a host.
inline double HostValueMs(const HostRanks& host, std::span<const double> value_ms) {
  const auto of_host =
      value_ms.subspan(static_cast<std::size_t>(host.first), static_cast<std::size_t>(host.count));
  return *std::ranges::max_element(of_host);
}

// All hosts, those for which value_of(HostRanks) is lowest first.
template <typename Value>
std::vector<int> HostsByValue(const std::vector<HostRanks>& hosts, const Value& value_of) {
  std::vector<double> values;
  for (const HostRanks& host : hosts) values.push_back(value_of(host));
  return PositionsDescending<int>(hosts.size(), [&](int host) { return -At(values, host); });
}

// Up to `most` hosts, those with the lowest largest values first, without `but` (-1: all).
inline std::vector<int> LowestHosts(const std::vector<HostRanks>& hosts,
                                    std::span<const double> value_ms, std::size_t most,
                                    int but = -1) {
  std::vector<int> lowest =
      HostsByValue(hosts, [&](const HostRanks& host) { return HostValueMs(host, value_ms); });
  std::erase(lowest, but);
  if (lowest.size() > most) lowest.resize(most);
  return lowest;
}

// A unit of Spread::kRank or kOneHost on another rank or host, its shards predicted or to be.
inline Unit MovedTo(int place, Unit unit, const Solution& solution, ShardTable& shard_table) {
  unit.place = place;
  if (unit.spread() == Spread::kOneHost) {
    unit.shards = shard_table.Shards(unit.table, unit.type, unit.cols, solution.host(place).count,
                                     unit.residency);
  }
  return unit;
}

// Sorts ranks, those with the lowest values first.
inline void SortByValue(std::vector<int>& ranks, std::span<const double> value_ms) {
  std::ranges::stable_sort(ranks, [&](int a, int b) { return At(value_ms, a) < At(value_ms, b); });
}

// Where a unit may go.
struct Candidates {
  std::span<const int> ranks = {};  // of a unit on one rank, or on `holders` of them (ascending)
  std::span<const int> hosts = {};  // of a unit on a host, which counts by the largest value there
  int holders = 1;
};

// The unit with its shards at its lowest candidate; nullopt: there is none that will do.
// value_ms: by rank. part_fits(rank, shard) says of ranks whether one of several holders may be
// there; allowed(unit) is asked only of places that are lower than all before, and of all else.
template <typename PartFits, typename Allowed>
std::optional<Unit> OnLowestPlace(Unit unit, const Candidates& candidates,
                                  std::span<const double> value_ms, Solution& solution,
                                  ShardTable& shard_table, const PartFits& part_fits,
                                  const Allowed& allowed) {
  const auto cut = [&](int count) {
    unit.shards = shard_table.Shards(unit.table, unit.type, unit.cols, count, unit.residency);
  };
  if (TakesEveryRank(unit.type)) {
    cut(solution.num_ranks());
    return allowed(unit) ? std::optional(unit) : std::nullopt;
  }
  if (unit.spread() == Spread::kSubset) {
    cut(candidates.holders);
    std::vector<int> ranks;
    std::copy_if(candidates.ranks.begin(), candidates.ranks.end(), std::back_inserter(ranks),
                 [&](int rank) { return part_fits(rank, unit.shards.full); });
    if (ranks.size() < static_cast<std::size_t>(candidates.holders)) return std::nullopt;
    SortByValue(ranks, value_ms);
    ranks.resize(static_cast<std::size_t>(candidates.holders));
    std::ranges::sort(ranks);
    unit.place = solution.AddSubset(std::move(ranks));
    return allowed(unit) ? std::optional(unit) : std::nullopt;
  }
  const bool on_host = unit.spread() == Spread::kOneHost;
  if (!on_host) cut(1);
  std::optional<Unit> best;
  double lowest_ms = std::numeric_limits<double>::infinity();
  for (const int place : on_host ? candidates.hosts : candidates.ranks) {
    const double here_ms =
        on_host ? HostValueMs(solution.host(place), value_ms) : At(value_ms, place);
    if (here_ms >= lowest_ms) continue;
    unit.place = place;
    if (on_host) cut(solution.host(place).count);
    if (!allowed(unit)) continue;
    best = unit;
    lowest_ms = here_ms;
  }
  return best;
}

}  // namespace neuroshard
