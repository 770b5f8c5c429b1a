#include "server/search/refine/moves/partition_moves.h"

#include <algorithm>
#include <iterator>

#include "common/base/positions.h"
#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Ranks and hosts that the source is paired with.
constexpr std::size_t kPairs = 4;
constexpr std::size_t kMaxNodes = 500;
// Shifts and swaps of two are other neighbourhoods, and of more units hardly a partition is seen.
constexpr std::size_t kMinUnits = 3;
constexpr std::size_t kMaxUnits = kMaxNodes / 4;
// A partition has to relieve the slower place by this share at least.
constexpr double kMinRelief = 1e-9;

}  // namespace

void PartitionMoves::Collect(int source, MoveList& list) {
  const Objective& objective = pricer_.objective();
  total_ms_.clear();
  for (int r = 0; r < objective.num_ranks(); ++r) {
    total_ms_.push_back(objective.rank(r).total_ms());
  }
  std::vector<int> ranks = Positions<int>(total_ms_.size());
  std::erase(ranks, source);
  const std::size_t pairs = std::min(kPairs, ranks.size());
  objective.BringLargest(ranks, pairs, [](const RankPrice& r) { return -r.total_ms(); });
  ranks.resize(pairs);
  for (const int target : ranks) {
    if (context_.ShouldStop()) return;
    const std::array places = {Place{source, {source, 1}}, Place{target, {target, 1}}};
    if (!ListUnits(solution_.units_on_rank(source), solution_.units_on_rank(target), places,
                   &PartitionMoves::MayBeOnRank)) {
      continue;
    }
    const auto moved = [](Unit unit, int rank) {
      unit.place = rank;
      return unit;
    };
    Partition(places, moved, list);
  }
  const int host = solution_.host_of(source);
  std::vector<int> hosts =
      HostsByValue(rules_.hosts(), [&](const HostRanks& of) { return HostValueMs(of, total_ms_); });
  std::erase(hosts, host);
  hosts.resize(std::min(kPairs, hosts.size()));
  for (const int target : hosts) {
    if (context_.ShouldStop()) return;
    const std::array places = {Place{host, solution_.host(host)},
                               Place{target, solution_.host(target)}};
    if (!ListUnits(solution_.units_on_host(host), solution_.units_on_host(target), places,
                   &PartitionMoves::MayBeOnHost)) {
      continue;
    }
    const auto moved = [&](const Unit& unit, int to) {
      return OnHost(unit, to, solution_, shard_table_);
    };
    Partition(places, moved, list);
  }
}

bool PartitionMoves::MayBeOnRank(const Unit& unit, int rank) const {
  const TableRules& rules = rules_.of(unit.table);
  const bool stays_on_host = unit.type == ShardingType::kTableColumnWise || rules.host_group >= 0;
  if (solution_.fixed(unit.table) != nullptr || rules.rank_group >= 0 ||
      !rules.ranks->contains(rank) ||
      (stays_on_host && solution_.host_of(unit.place) != solution_.host_of(rank))) {
    return false;
  }
  return std::ranges::none_of(solution_.units_of_table(unit.table),
                              [&](int id) { return solution_.unit(id).place == rank; });
}

bool PartitionMoves::MayBeOnHost(const Unit& unit, int host) const {
  const TableRules& rules = rules_.of(unit.table);
  const bool is_alone = solution_.units_of_table(unit.table).size() == 1;
  return solution_.fixed(unit.table) == nullptr && rules.host_group < 0 &&
         std::ranges::count(rules.ranks->whole_hosts(), host) > 0 &&
         (is_alone || solution_.host(unit.place).count == solution_.host(host).count);
}

bool PartitionMoves::ListUnits(std::span<const int> on_first, std::span<const int> on_second,
                               const std::array<Place, 2>& places,
                               bool (PartitionMoves::*may_be_on)(const Unit&, int) const) {
  ids_.clear();
  if (on_first.size() + on_second.size() > kMaxUnits) return false;
  const auto add = [&](std::span<const int> ids, int to) {
    std::ranges::copy_if(ids, std::back_inserter(ids_),
                         [&](int id) { return (this->*may_be_on)(solution_.unit(id), to); });
  };
  add(on_first, places[1].index);
  add(on_second, places[0].index);
  return ids_.size() >= kMinUnits;
}

template <typename Moved>
void PartitionMoves::Partition(const std::array<Place, 2>& places, const Moved& moved,
                               MoveList& list) {
  units_.clear();
  for (const int id : ids_) {
    const Unit& unit = solution_.unit(id);
    std::array both = {unit, unit};
    for (std::size_t p = 0; p < 2; ++p) {
      if (unit.place != places[p].index) both[p] = moved(unit, places[p].index);
    }
    units_.push_back(both);
  }
  shard_table_.PredictNew();
  items_.assign(ids_.size(), {});
  std::array<PartitionSide, 2> sides;  // without the units
  double now_ms = 0;
  for (std::size_t p = 0; p < 2; ++p) {
    const HostRanks& ranks = places[p].ranks;
    sides[p].ms = HostValueMs(ranks, total_ms_);
    now_ms = std::max(now_ms, sides[p].ms);
    sides[p].room = solution_.pools().Left(ranks.first);
    for (int r = ranks.first; r < ranks.first + ranks.count; ++r) {
      std::int64_t& room = sides[p].room[MemoryTier::kDevice];
      room = std::min(room, solution_.LeftBytes(r));
    }
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const UnitShards& shards = units_[i][p].shards;
      PartitionItem& item = items_[i];
      item.ms[p] = pricer_.ShareOf(ranks.first, shards.full);
      for (const auto& [tier, name] : kWords<MemoryTier>) {
        // Each rank has a device of its own, and all together what their host has.
        const int ranks_of_memory = tier == MemoryTier::kDevice ? 1 : shards.count;
        item.bytes[p][tier] = ranks_of_memory * shard_table_.tier_bytes(shards.full)[tier];
      }
      if (solution_.unit(ids_[i]).place != places[p].index) continue;
      sides[p].ms -= item.ms[p];
      for (const auto& [tier, name] : kWords<MemoryTier>) {
        sides[p].room[tier] += item.bytes[p][tier];
      }
    }
  }
  const PartitionResult best = PartitionPair(items_, sides, (1 - kMinRelief) * now_ms, kMaxNodes);
  context_.AddWork(Work::kEstimate, ids_.size() + best.nodes);
  if (!best.sides) return;
  removed_.clear();
  added_.clear();
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::size_t side = (*best.sides)[i];
    if (places[side].index == solution_.unit(ids_[i]).place) continue;
    removed_.push_back(ids_[i]);
    added_.push_back(units_[i][side]);
  }
  const double estimate_ms = pricer_.Estimate(removed_, added_);
  if (list.Wants(estimate_ms)) list.Add(estimate_ms, removed_, added_);
}

}  // namespace neuroshard
