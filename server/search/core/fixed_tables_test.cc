#include "server/search/core/fixed_tables.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/random.h"
#include "tests/support/random_plan_request.h"

namespace neuroshard {
namespace {

double WeightBytesOf(const Table& table) {
  return static_cast<double>(table.num_embeddings * table.embedding_dim) *
         ElementBytes(table.weight_dtype);
}

TEST(FixAllButTest, WhateverBecomesOfTheFreedOnesTheBytesHold) {
  Random random(41);
  int freed = 0;
  for (int i = 0; i < 300; ++i) {
    PlanRequest request = testing::RandomPlanRequest(random, {.max_tables = 20});
    Plan previous;
    for (const Table& table : request.tables) previous.tables.emplace_back().name = table.name;
    std::vector<const TablePlan*> stay;
    for (const TablePlan& table : previous.tables) {
      stay.push_back(random.UniformReal() < 0.8 ? &table : nullptr);
    }
    const CompiledRules rules(request,
                              TypeSet{ShardingType::kTableWise, ShardingType::kDataParallel});
    std::vector<double> paid;
    for (const Table& table : request.tables) {
      const double share = random.Below(3) == 0 ? random.UniformReal() : 0;
      paid.push_back(std::floor(WeightBytesOf(table) * share));
    }
    const double all = BytesOf(request, rules, stay, paid);
    const double bytes = all * random.UniformReal();
    const FixedTables fixed = FixAllBut(request, rules, stay, paid, bytes);
    double moved = 0;
    for (std::size_t t = 0; t < stay.size(); ++t) {
      if (stay[t] == nullptr) {
        EXPECT_EQ(fixed[t], nullptr);
        continue;
      }
      if (fixed[t] != nullptr) continue;
      moved += WeightBytesOf(request.tables[t]) - paid[t];
      ++freed;
    }
    EXPECT_LE(moved, bytes);

    const FixedTables none = FixAllBut(request, rules, stay, paid, all);
    EXPECT_EQ(none, std::vector<const TablePlan*>(stay.size(), nullptr));
    EXPECT_EQ(FixAllBut(request, rules, stay, paid, 0), stay);
    double all_paid = 0;
    for (std::size_t t = 0; t < stay.size(); ++t) all_paid += stay[t] != nullptr ? paid[t] : 0;
    const double for_once = (all + all_paid) / rules.num_ranks() - all_paid;
    const FixedTables once = FixAllBut(request, rules, stay, paid, for_once);
    EXPECT_EQ(once, none);
  }
  EXPECT_GT(freed, 100);
}

TEST(FixAllButTest, WhatRulesKeepInPlaceIsNeverFreed) {
  Random random(42);
  PlanRequest request = testing::RandomPlanRequest(random, {.max_tables = 20});
  Migration& migration = request.migration.emplace();
  migration.only_types = {ShardingType::kColumnWise};
  std::vector<const TablePlan*> stay;
  std::vector<const TablePlan*> kept;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const Table& table = request.tables[t];
    TablePlan& plan = migration.previous.tables.emplace_back();
    plan.name = table.name;
    plan.module = table.module;
    plan.sharding_type = t % 2 == 0 ? ShardingType::kTableWise : ShardingType::kColumnWise;
    plan.shards = {{0, table.num_embeddings, 0, table.embedding_dim, 0}};
  }
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    stay.push_back(&migration.previous.tables[t]);
    kept.push_back(t % 2 == 0 ? stay.back() : nullptr);
  }
  const CompiledRules rules(request, TypeSet::All());
  const std::vector<double> paid(stay.size(), 0);
  const double all = BytesOf(request, rules, stay, paid);
  EXPECT_EQ(FixAllBut(request, rules, stay, paid, all), kept);
  EXPECT_EQ(FixAllBut(request, rules, stay, paid, 1e18), kept);
}

}  // namespace
}  // namespace neuroshard
