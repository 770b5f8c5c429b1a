#include "server/evaluate/rules/rule_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/base/random.h"

namespace neuroshard {
namespace {

struct Placed {
  int table;
  int rank;
};

// The rules as a person reads them, over everything that is placed.
bool Keeps(const PlanRequest& request, const std::vector<Placed>& placed) {
  const Constraints& constraints = request.constraints;
  const auto host = [&](int rank) {
    return request.topology.devices[static_cast<std::size_t>(rank)].host;
  };
  const auto names = [](const std::vector<int>& all, int one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  std::multiset<std::pair<int, int>> on_rank;  // rank, table
  for (const Placed& p : placed) on_rank.insert({p.rank, p.table});
  for (int rank = 0; rank < request.topology.num_ranks(); ++rank) {
    int shards = 0;
    std::set<int> tables;
    for (const auto& [r, table] : on_rank) {
      if (r != rank) continue;
      ++shards;
      tables.insert(table);
    }
    if (constraints.max_shards_per_rank > 0 && shards > constraints.max_shards_per_rank) {
      return false;
    }
    if (constraints.max_tables_per_rank > 0 &&
        static_cast<int>(tables.size()) > constraints.max_tables_per_rank) {
      return false;
    }
  }
  for (const TableRule& rule : constraints.tables) {
    for (const Placed& p : placed) {
      if (!names(rule.tables, p.table)) continue;
      if (!rule.ranks.empty() && !names(rule.ranks, p.rank)) return false;
      if (names(rule.forbidden_ranks, p.rank)) return false;
      if (!rule.hosts.empty() && !names(rule.hosts, host(p.rank))) return false;
      if (names(rule.forbidden_hosts, host(p.rank))) return false;
      if (rule.distinct_ranks && on_rank.count({p.rank, p.table}) > 1) return false;
    }
  }
  const auto together = [&](const Placed& a, const Placed& b, GroupLevel level) {
    return level == GroupLevel::kRank ? a.rank == b.rank : host(a.rank) == host(b.rank);
  };
  for (const Placed& a : placed) {
    for (const Placed& b : placed) {
      for (const TableGroup& group : constraints.colocate) {
        const bool both = names(group.tables, a.table) && names(group.tables, b.table);
        if (both && !together(a, b, group.level)) return false;
      }
      for (const TableGroup& group : constraints.separate) {
        const bool both = names(group.tables, a.table) && names(group.tables, b.table);
        if (both && a.table != b.table && together(a, b, group.level)) return false;
      }
    }
  }
  return true;
}

std::vector<int> SomeOf(Random& random, int count, int least) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(i);
  random.Shuffle(all);
  all.resize(static_cast<std::size_t>(random.Between(least, count)));
  std::sort(all.begin(), all.end());
  return all;
}

PlanRequest RandomRules(Random& random) {
  constexpr int kTables = 4;
  PlanRequest request;
  request.tables.resize(kTables);
  for (Table& table : request.tables) table.embedding_dim = 16;
  for (const int host : {0, 0, 1, 1, 1, 2}) request.topology.devices.push_back({host, 1});
  for (int i = static_cast<int>(random.Below(4)); i > 0; --i) {
    TableRule rule;
    rule.tables = SomeOf(random, kTables, 1);
    if (random.Below(4) == 0) rule.ranks = SomeOf(random, 6, 3);
    if (random.Below(4) == 0) rule.forbidden_ranks = SomeOf(random, 2, 1);
    if (random.Below(4) == 0) rule.hosts = SomeOf(random, 3, 2);
    if (random.Below(6) == 0) rule.forbidden_hosts = {static_cast<int>(random.Below(3))};
    rule.distinct_ranks = random.Below(2) == 0;
    request.constraints.tables.push_back(rule);
  }
  const auto level = [&] { return random.Below(2) == 0 ? GroupLevel::kRank : GroupLevel::kHost; };
  if (random.Below(2) == 0) {
    request.constraints.colocate.push_back({SomeOf(random, kTables, 2), level()});
  }
  if (random.Below(2) == 0) {
    request.constraints.separate.push_back({SomeOf(random, kTables, 2), level()});
  }
  if (random.Below(3) == 0) request.constraints.max_shards_per_rank = 2;
  if (random.Below(3) == 0) request.constraints.max_tables_per_rank = 2;
  return request;
}

// Co-located tables narrow each other's ranks before anything is placed, so Allows may say no
// where nothing is broken yet; it never says yes where something is.
TEST(RuleStateTest, WhatIsAllowedBreaksNothingAndWhatIsForbiddenDoes) {
  Random random(3);
  int allowed = 0;
  int forbidden = 0;
  for (int i = 0; i < 400; ++i) {
    const PlanRequest request = RandomRules(random);
    const CompiledRules rules(request, TypeSet::All());
    RuleState state(rules);
    std::vector<Placed> placed;
    for (int step = 0; step < 30; ++step) {
      if (!placed.empty() && random.Below(3) == 0) {
        const std::size_t at = random.Below(placed.size());
        state.Remove(placed[at].table, placed[at].rank);
        placed.erase(placed.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      const Placed next{static_cast<int>(random.Below(4)), static_cast<int>(random.Below(6))};
      placed.push_back(next);
      const bool keeps = Keeps(request, placed);
      if (state.Allows(next.table, next.rank)) {
        ASSERT_TRUE(keeps);
        state.Add(next.table, next.rank);
        ++allowed;
        continue;
      }
      if (rules.of(next.table).ranks->contains(next.rank) || request.constraints.colocate.empty()) {
        ASSERT_FALSE(keeps);
        ++forbidden;
      }
      placed.pop_back();
    }
    for (int rank = 0; rank < 6; ++rank) {
      const auto on = std::count_if(placed.begin(), placed.end(),
                                    [&](const Placed& p) { return p.rank == rank; });
      EXPECT_EQ(state.shards_on(rank), on);
    }
  }
  EXPECT_GT(allowed, 1000);
  EXPECT_GT(forbidden, 1000);
}

TEST(RuleStateTest, AShardOnEachRankCountsOnEachRank) {
  PlanRequest request;
  request.tables.resize(3);
  for (Table& table : request.tables) table.embedding_dim = 8;
  request.topology.devices = {{0, 1}, {0, 1}};
  request.constraints.max_tables_per_rank = 2;
  const CompiledRules rules(request, TypeSet::All());
  RuleState state(rules);
  EXPECT_TRUE(state.AllowsOnEachRank(0));
  state.AddOnEachRank(0);
  state.Add(1, 1);
  EXPECT_EQ(state.shards_on(0), 1);
  EXPECT_EQ(state.tables_on(1), 2);
  EXPECT_FALSE(state.AllowsOnEachRank(2));
  EXPECT_FALSE(state.Allows(2, 1));
  EXPECT_TRUE(state.Allows(1, 1));
  EXPECT_TRUE(state.Allows(2, 0));
  state.RemoveOnEachRank(0);
  EXPECT_TRUE(state.AllowsOnEachRank(2));
}

TEST(RuleStateTest, OneHostForACoLocatedTableIsNotEachRankOfTwo) {
  PlanRequest request;
  request.tables.resize(2);
  for (Table& table : request.tables) table.embedding_dim = 8;
  request.topology.devices = {{0, 1}, {0, 1}};
  request.constraints.colocate = {{{0, 1}, GroupLevel::kHost}};
  EXPECT_TRUE(RuleState(CompiledRules(request, TypeSet::All())).AllowsOnEachRank(0));
  request.topology.devices = {{0, 1}, {1, 1}};
  EXPECT_FALSE(RuleState(CompiledRules(request, TypeSet::All())).AllowsOnEachRank(0));
}

}  // namespace
}  // namespace neuroshard
