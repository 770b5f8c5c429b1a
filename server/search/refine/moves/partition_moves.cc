#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <vector>

#include "server/search/refine/moves/neighbourhood.h"
#include "server/search/refine/moves/pair_partition.h"
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

class PartitionMoves final : public Neighbourhood {
 public:
  using Neighbourhood::Neighbourhood;

  void Collect(int source, double /*max_ms*/, MoveList& list) override {
    total_ms_ = pricer_.objective().TotalsMs();
    const auto rank_place = [&](int rank) {
      return Place{rank, {rank, 1}, solution_.units_on_rank(rank)};
    };
    for (const int target : pricer_.objective().Lowest(kPairs, source)) {
      if (context_.ShouldStop()) return;
      Partition(
          {rank_place(source), rank_place(target)},
          [&](const Unit& unit, int rank) { return MayBeOnRank(unit, rank); }, list);
    }
    const int host = solution_.host_of(source);
    const auto host_place = [&](int of) {
      return Place{of, solution_.host(of), solution_.units_on_host(of)};
    };
    for (const int target : LowestHosts(rules_.hosts(), total_ms_, kPairs, host)) {
      if (context_.ShouldStop()) return;
      Partition(
          {host_place(host), host_place(target)},
          [&](const Unit& unit, int at) { return MayBeOnHost(unit, at); }, list);
    }
  }

 private:
  // A rank or a host.
  struct Place {
    int index = 0;
    HostRanks ranks;
    std::span<const int> units;
  };

  bool MayBeOnRank(const Unit& unit, int rank) const {
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

  bool MayBeOnHost(const Unit& unit, int host) const {
    const TableRules& rules = rules_.of(unit.table);
    const bool is_alone = solution_.units_of_table(unit.table).size() == 1;
    return solution_.fixed(unit.table) == nullptr && rules.host_group < 0 &&
           std::ranges::count(rules.ranks->whole_hosts(), host) > 0 &&
           (is_alone || solution_.host(unit.place).count == solution_.host(host).count);
  }

  // Proposes the best partition of the units that may_be_on(unit, place) the other place.
  template <typename MayBeOn>
  void Partition(const std::array<Place, 2>& places, const MayBeOn& may_be_on, MoveList& list) {
    if (places[0].units.size() + places[1].units.size() > kMaxUnits) return;
    ids_.clear();
    for (std::size_t p = 0; p < 2; ++p) {
      std::ranges::copy_if(places[p].units, std::back_inserter(ids_), [&](int id) {
        return may_be_on(solution_.unit(id), places[1 - p].index);
      });
    }
    if (ids_.size() < kMinUnits) return;
    units_.clear();
    for (const int id : ids_) {
      const Unit& unit = solution_.unit(id);
      std::array both = {unit, unit};
      for (std::size_t p = 0; p < 2; ++p) {
        if (unit.place != places[p].index) {
          both[p] = MovedTo(places[p].index, unit, solution_, shard_table_);
        }
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
    Propose(removed_, added_, list);
  }

  // Scratch of one Collect, kept for its memory.
  std::vector<double> total_ms_;  // by rank
  std::vector<int> ids_;
  std::vector<std::array<Unit, 2>> units_;  // those of ids_ on either place
  std::vector<PartitionItem> items_;
  std::vector<int> removed_;
  std::vector<Unit> added_;
};

}  // namespace

std::unique_ptr<Neighbourhood> MakePartitionMoves(Workbench& bench) {
  return std::make_unique<PartitionMoves>(bench);
}

}  // namespace neuroshard
