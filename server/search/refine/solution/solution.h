// Solution of local search: a placement under improvement, with sums per rank that a move changes
// in a few ranks.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/domain/memory_pools.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/rules/rule_state.h"
#include "server/search/core/fixed_tables.h"
#include "server/search/core/rank_cost_cache.h"
#include "server/search/core/shard_table.h"
#include "server/search/refine/solution/migration_terms.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// Units by id, with sums of loads, memory and representations per rank. What Allows allows keeps
// memory, the rules and the fixed tables. Add, Remove and Allows take time in the shards of the
// units (Remove also in the units of their table and place), Clear in ranks and tables. Removing
// what was added in the opposite order restores ids, lists and content exactly, and sums to
// rounding of doubles. For one thread.
class Solution {
 public:
  // All must outlive the solution.
  Solution(const PlanRequest& request, const CompiledRules& rules, const ShardTable& shard_table);

  // Sums are kept in doubles: adding and taking away floats leaves no drift that a float could
  // show.
  struct Rank {
    double forward_load = 0;
    double backward_load = 0;
    double shard_costs_ms = 0;  // sum of ShardTable::shard_cost_ms: its compute where that adds up
    int shards = 0;
    RankContent content = 0;

    // Adds a shard that the rank gets (sign 1) or takes away one that it has (-1).
    void Count(const ShardTable& table, int rank, int shard, int sign) {
      const CommLoad& load = table.load(shard);
      forward_load += sign * static_cast<double>(load.forward);
      backward_load += sign * static_cast<double>(load.backward);
      shard_costs_ms += sign * static_cast<double>(table.shard_cost_ms(shard, rank));
      shards += sign;
      content += sign > 0 ? ContentOf(shard) : -ContentOf(shard);
    }
  };

  // The kinds of all units; after the move of `removed` (distinct ids) for `added`.
  ShardKinds kinds() const { return kinds_.Present(); }
  ShardKinds KindsAfter(std::span<const int> removed, std::span<const Unit> added) const;

  // The unit's shards are known to the shard_table and predicted. Returns its id, which stays until
  // it is removed and may be used again then.
  int Add(const Unit& unit);
  void Remove(int id);
  void Clear();

  // From now on tables stay as `fixed` says; `units` are those of all that stay. Clears the
  // solution.
  void Fix(FixedTables fixed, std::vector<Unit> units);
  // Null: the table is free.
  const TablePlan* fixed(int table) const { return fixed_.empty() ? nullptr : At(fixed_, table); }
  // From now on moves are counted, and no more are allowed than `terms` have bytes for. Clears the
  // solution.
  void CountMoves(MigrationTerms terms);
  const std::optional<MigrationTerms>& migration_terms() const { return terms_; }
  // What the moves cost now, or after the move of `removed` (distinct ids) for `added`; 0 where they
  // are not counted.
  double MovesMs(std::span<const int> removed = {}, std::span<const Unit> added = {}) const;
  std::span<const Unit> fixed_units() const { return fixed_units_; }

  const Unit& unit(int id) const { return At(units_, id); }
  // In no particular order, but the same for the same history.
  std::span<const int> units_of_table(int table) const { return At(of_table_, table); }
  // Units with a shard on this one rank alone (Spread::kRank).
  std::span<const int> units_on_rank(int rank) const { return At(on_rank_, rank); }
  // Units of Spread::kOneHost.
  std::span<const int> units_on_host(int host) const { return At(on_host_, host); }
  // Units of the other spreads.
  std::span<const int> wide_units() const { return wide_; }
  // The residency of a table that has units.
  int residency_of(int table) const { return unit(units_of_table(table).front()).residency; }
  // All units, by table.
  std::vector<Unit> Units() const;
  // Writes them into `units`, whose memory is reused.
  void Units(std::vector<Unit>& units) const;

  // Whether every rank has room for what it would hold after the move of `removed` (distinct
  // ids) for `added`, and no rule on ranks would be broken. Changes nothing.
  bool Allows(std::span<const int> removed, std::span<const Unit> added);

  // What is left for more units.
  const MemoryPools& pools() const { return pools_; }

  // Whether the rules allow one more shard of the table there.
  bool RuleAllows(int table, int rank) const {
    return !constrained_ || rule_state_.Allows(table, rank);
  }

  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  int num_hosts() const { return static_cast<int>(rules_->hosts().size()); }
  const HostRanks& host(int index) const { return At(rules_->hosts(), index); }
  int host_of(int rank) const { return rules_->host_of(rank); }
  const CompiledRules& rules() const { return *rules_; }
  // Device memory that is left; below 0 where tables take more than there is.
  std::int64_t LeftBytes(int rank) const { return pools_.LeftOnDevice(rank); }
  // Whether the rank's device has room for so much more.
  bool Fits(int rank, std::int64_t more_bytes) const { return more_bytes <= LeftBytes(rank); }
  // Whether the rank has, and its host, for one more shard.
  bool HasRoomFor(int rank, int shard) const {
    return Fits(rank, shard_table_->bytes(shard)) &&
           pools_.FitsShared(rank, shard_table_->tier_bytes(shard));
  }
  const Rank& rank(int index) const { return At(ranks_, index); }
  // Summed representation of what the rank holds.
  const double* sum(int rank) const {
    return sums_.data() + static_cast<std::size_t>(rank) * shard_table_->width();
  }

  // Where the unit's i-th shard is, i in [0, unit.shards.count).
  int RankOf(const Unit& unit, int i) const {
    switch (unit.spread()) {
      case Spread::kRank:
        return unit.place;
      case Spread::kOneHost:
        return host(unit.place).first + i;
      case Spread::kSubset:
        return At(subset(unit.place), i);
      case Spread::kRows:
      case Spread::kCopies:
        break;
    }
    return i;
  }

  // Calls visit(rank, shard) for each shard of the unit.
  template <typename Visit>
  void ForEachShard(const Unit& unit, const Visit& visit) const {
    for (int i = 0; i < unit.shards.count; ++i) visit(RankOf(unit, i), unit.shards.at(i));
  }
  // Calls visit(id of its unit, shard) for each shard on the rank.
  template <typename Visit>
  void ForEachShardOn(int rank, const Visit& visit) const {
    const auto of_unit = [&](int id) {
      ForEachShard(unit(id), [&](int at, int shard) {
        if (at == rank) visit(id, shard);
      });
    };
    for (const int id : units_on_rank(rank)) of_unit(id);
    for (const int id : units_on_host(host_of(rank))) of_unit(id);
    for (const int id : wide_units()) of_unit(id);
  }

  // Where LayOut is to put the unit.
  std::span<const int> PlacesOf(const Unit& unit) const {
    return unit.spread() == Spread::kSubset ? subset(unit.place) : std::span(&unit.place, 1);
  }

  // The number of a subset for Unit::place; `ranks` ascending and distinct, two at least.
  int AddSubset(std::vector<int> ranks);
  std::span<const int> subset(int number) const { return At(subsets_, number); }

 private:
  // Units by the kinds of their shards and by the exchanges that these are part of.
  struct KindCounts {
    int whole_rows = 0;
    int cut_rows = 0;
    int replicas = 0;
    std::uint64_t exchanges = 0;
    std::array<int, 64> of_exchange{};

    void Add(const ShardKinds& kinds, int sign) {
      whole_rows += kinds.whole_rows ? sign : 0;
      cut_rows += kinds.cut_rows ? sign : 0;
      replicas += kinds.replicas ? sign : 0;
      for (std::uint64_t left = kinds.exchanges; left != 0; left &= left - 1) {
        int& count = At(of_exchange, std::countr_zero(left));
        count += sign;
        const std::uint64_t bit = left & -left;
        exchanges = count > 0 ? exchanges | bit : exchanges & ~bit;
      }
    }
    ShardKinds Present() const { return {whole_rows > 0, cut_rows > 0, replicas > 0, exchanges}; }
  };

  const ShardKinds& KindsOf(const Unit& unit) const {
    return shard_table_->load(unit.shards.full).kinds;
  }
  void Apply(const Unit& unit, int sign);
  double MovedBytes(const Unit& unit) const;  // requires terms_
  // That move after that, less those that do now; requires terms_.
  double MoreMovedBytes(std::span<const int> removed, std::span<const Unit> added) const;
  // Whether the budget has bytes for what moves then, or no more moves than now.
  bool KeepsToMigrationBudget(std::span<const int> removed, std::span<const Unit> added) const;
  void CountForRules(const Unit& unit, int sign);
  // Whether devices, hosts, and ranks by their own limits, have memory of every kind for the tables
  // that come.
  bool HasRoom(std::span<const int> removed, std::span<const Unit> added);
  // Whether it takes any of what the ranks of a host share: where its rows are, or where copies of
  // what is stashed are.
  bool IsInSharedMemory(const Unit& unit) const {
    return unit.residency != 0 || shard_table_->tier_bytes(unit.shards.full)[MemoryTier::kHost] > 0;
  }
  // Whether no table that comes has more shards than its rules allow.
  bool KeepsToShardLimits(std::span<const int> removed, std::span<const Unit> added) const;
  // Whether the columns of each table_column_wise table that comes are on one host, and the blocks
  // of each grid_shard table on hosts of one size: a table has one number of row shards
  // (ShardLayout).
  bool KeepsToHosts(std::span<const int> removed, std::span<const Unit> added) const;
  // Whether no rank has two shards of a table whose kernel keeps apart.
  bool KeepsApart(std::span<const int> removed, std::span<const Unit> added) const;
  // Counts the unit if the rules allow it; otherwise nothing changes.
  bool TryForRules(const Unit& unit);
  std::vector<int>& PlaceList(const Unit& unit);

  const CompiledRules* rules_;
  const ShardTable* shard_table_;
  bool constrained_;
  RuleState rule_state_;  // of use only if constrained
  const MemoryPools all_pools_;
  MemoryPools pools_;  // what is left of them
  FixedTables fixed_;  // empty: all is free
  std::vector<Unit> fixed_units_;
  std::optional<MigrationTerms> terms_;
  double moved_bytes_ = 0;  // of all units, where moves are counted
  std::vector<std::vector<int>> subsets_;
  std::map<std::vector<int>, int> subset_numbers_;
  std::vector<Unit> units_;
  std::vector<int> free_ids_;
  std::vector<std::vector<int>> of_table_;
  std::vector<std::vector<int>> on_rank_;
  std::vector<std::vector<int>> on_host_;
  std::vector<int> wide_;
  KindCounts kinds_;
  std::vector<Rank> ranks_;
  std::vector<double> sums_;  // [ranks, width]
};

}  // namespace neuroshard
