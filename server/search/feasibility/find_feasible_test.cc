#include "server/search/feasibility/find_feasible.h"

#include <gmock/gmock.h>

#include <string>

#include "common/base/random.h"
#include "server/evaluate/check_plan.h"
#include "server/search/testing/all_plans.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_migration.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::testing::IsEmpty;

// 40 tables on 10 ranks, full but for `spare`, with rules that the plan keeps that they come from.
PlanRequest FullRanks(Random& random, double spare, bool rules) {
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  std::vector<double> held(10, 0);
  std::vector<int> rank_of;
  std::vector<int> count(10, 0);
  for (int t = 0; t < 40; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = std::to_string(t);
    table.num_embeddings = random.Between(1000, 1'000'000);
    table.embedding_dim = 16;
    std::size_t rank = random.Below(10);
    while (count[rank] == 5) rank = random.Below(10);
    ++count[rank];
    held[rank] += 64.0 * static_cast<double>(table.num_embeddings);
    rank_of.push_back(static_cast<int>(rank));
  }
  for (std::size_t r = 0; r < 10; ++r) {
    request.topology.devices.push_back(
        {static_cast<int>(r / 5), static_cast<std::int64_t>(held[r] * (1 + spare))});
  }
  if (!rules) return request;
  request.constraints.max_tables_per_rank = 5;
  for (int t = 0; t < 8; ++t) {
    TableRule& rule = request.constraints.tables.emplace_back();
    rule.tables = {t};
    rule.hosts = {rank_of[static_cast<std::size_t>(t)] / 5};
  }
  TableGroup together;
  TableGroup apart;
  std::vector<bool> used(10, false);
  for (int t = 0; t < 40; ++t) {
    const int rank = rank_of[static_cast<std::size_t>(t)];
    if (rank == rank_of[0] && together.tables.size() < 3) together.tables.push_back(t);
    if (!used[static_cast<std::size_t>(rank)] && apart.tables.size() < 5) {
      used[static_cast<std::size_t>(rank)] = true;
      apart.tables.push_back(t);
    }
  }
  if (together.tables.size() > 1) request.constraints.colocate.push_back(together);
  request.constraints.separate.push_back(apart);
  return request;
}

TEST(FindFeasibleTest, FindsWhatAPlanIsKnownFor) {
  Random random(91);
  for (int i = 0; i < testing::Trials(40); ++i) {
    const PlanRequest request = FullRanks(random, i % 4 == 0 ? 0.0 : 0.005 * (i % 4), i % 2 == 0);
    const CompiledRules rules(request, {ShardingType::kTableWise});
    const Feasible feasible = FindFeasible(request, rules, NeverStop());
    ASSERT_TRUE(feasible.plan.has_value()) << i;
    ASSERT_THAT(CheckPlan(request, *feasible.plan), IsEmpty()) << i;
    ASSERT_EQ(FindFeasible(request, rules, NeverStop()).plan, feasible.plan);
  }
}

TEST(FindFeasibleTest, NoneIsSaidOnlyWhereThereIsNone) {
  Random random(92);
  int none = 0;
  for (int i = 0; i < 150; ++i) {
    PlanRequest request = testing::RandomPlanRequest(
        random,
        {.max_tables = 4, .max_ranks = 3, .dims = {4, 8}, .min_slack = 0.9, .max_slack = 1.3});
    testing::AddRandomConstraints(random, request, 8);
    request.constraints.sharding_types = {ShardingType::kTableWise};
    for (TableRule& rule : request.constraints.tables) rule.sharding_types.clear();
    if (i % 3 == 0) testing::AddRandomMigration(random, request);
    const CompiledRules rules(request, {});
    const Feasible feasible = FindFeasible(request, rules, NeverStop());
    if (feasible.plan.has_value()) {
      ASSERT_THAT(CheckPlan(request, *feasible.plan), IsEmpty()) << i;
    }
    if (!feasible.none) continue;
    ++none;
    ASSERT_FALSE(AnyPlanIsLegal(request, {})) << i;
  }
  EXPECT_GT(none, 20);
}

}  // namespace
}  // namespace neuroshard
