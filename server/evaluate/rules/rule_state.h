// Rule state: counts of where shards are while a search moves them, so that a rule on ranks is one
// look-up.
#pragma once

#include <utility>
#include <vector>

#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// The caller adds and removes shards; memory, sharding types and migration are its own business.
// Not for use from several threads at a time; copies are independent.
class RuleState {
 public:
  // No shards. `rules` must outlive the state.
  explicit RuleState(const CompiledRules& rules);

  // Whether one more shard of the table may be on the rank beside all that is placed: rank allowed,
  // groups, limits per rank, distinct ranks. Take a table (or a co-located group) off its ranks
  // before asking where else it may go. O(log(shards of the table) + its groups).
  bool Allows(int table, int rank) const;
  // Add what is allowed, remove what was added: anything else leaves the counts wrong.
  void Add(int table, int rank) { Count(table, rank, 1); }
  void Remove(int table, int rank) { Count(table, rank, -1); }

  // As the three above, for types that put a shard on every rank (TakesEveryRank); O(1) for tables
  // in no group, and the question O(ranks) where a limit per rank is set.
  bool AllowsOnEachRank(int table) const;
  void AddOnEachRank(int table) { CountOnEachRank(table, 1); }
  void RemoveOnEachRank(int table) { CountOnEachRank(table, -1); }

  int shards_on(int rank) const { return on_each_rank_ + At(shards_on_, rank); }
  // Counted only if max_tables_per_rank is set.
  int tables_on(int rank) const { return on_each_rank_ + At(tables_on_, rank); }

 private:
  // As long as there are shards: the one rank or host that a co-located group is on, or the one
  // table of a separate group on a rank or host.
  struct Claim {
    int by = -1;
    int shards = 0;
  };

  // sign: 1 or -1.
  void Count(int table, int rank, int sign);
  void CountOnEachRank(int table, int sign);
  // The position in claims_ of what a shard of the table on the rank claims, and its Claim::by.
  std::pair<int, int> ClaimOf(const GroupClaims& claims, int table, int rank) const {
    const int unit = claims.level == GroupLevel::kRank ? rank : rules_->host_of(rank);
    return claims.is_separate ? std::pair(claims.first + unit, table)
                              : std::pair(claims.first, unit);
  }
  int ShardsOfTableOn(int table, int rank) const;

  const CompiledRules* rules_;
  bool counts_tables_;
  int on_each_rank_ = 0;  // tables
  std::vector<int> shards_on_;
  std::vector<int> tables_on_;
  // By table: ranks with shards of it and how many, ascending. Kept only where a rule asks for it.
  std::vector<std::vector<std::pair<int, int>>> ranks_of_;
  std::vector<Claim> claims_;
};

}  // namespace neuroshard
