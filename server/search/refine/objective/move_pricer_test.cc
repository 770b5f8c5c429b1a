#include "server/search/refine/objective/move_pricer.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/evaluate/price_plan.h"
#include "server/search/refine/solution/plan_units.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/refine_bed.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

PlanRequest FourTablesOnTwoRanks() {
  PlanRequest request;
  for (const std::int64_t dim : {16, 32, 8, 64}) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(request.tables.size());
    table.num_embeddings = 1000 * dim;
    table.embedding_dim = dim;
    table.pooling_factor = 5;
  }
  request.topology.devices = {{0, std::int64_t{1} << 36}, {0, std::int64_t{1} << 36}};
  return request;
}

TEST(MovePricerTest, PricesWhatPricePlanSaysWhicheverCollectivesThereAre) {
  const PlanRequest request = FourTablesOnTwoRanks();
  const BoundCostModel model = testing::BoundTo(request, testing::ConcaveCostModel());
  const NeverStop never;
  SearchContext context(request, model, never, nullptr);
  const CompiledRules rules(request, TypeSet::All());
  ShardTable shard_table(context);
  Solution solution(request, rules, shard_table);
  MovePricer pricer(context, shard_table, solution);
  const auto unit = [&](int table, ShardingType type, int place) {
    const std::int64_t cols = request.tables[static_cast<std::size_t>(table)].embedding_dim;
    const int ranks = type == ShardingType::kTableWise ? 1 : 2;
    const Unit made{table, type, place, cols, shard_table.Shards(table, type, cols, ranks)};
    shard_table.PredictNew();
    return made;
  };
  const auto price_of_solution = [&] {
    const auto cost = PricePlan(request, MakePlan(request, solution, solution.Units()), model);
    EXPECT_TRUE(cost.ok()) << cost.status();
    return cost.ok() ? cost->embedding_cost_ms : 0;
  };
  std::vector<int> ids;
  for (int t = 0; t < 4; ++t) ids.push_back(solution.Add(unit(t, ShardingType::kTableWise, t % 2)));
  // There and back: every collective opens once and closes once.
  for (const auto& [table, type] :
       std::vector<std::pair<int, ShardingType>>{{0, ShardingType::kDataParallel},
                                                 {1, ShardingType::kRowWise},
                                                 {2, ShardingType::kDataParallel},
                                                 {3, ShardingType::kRowWise},
                                                 {0, ShardingType::kRowWise},
                                                 {2, ShardingType::kTableWise}}) {
    pricer.PriceSolution();
    EXPECT_NEAR(pricer.objective().cost_ms(), price_of_solution(), 1e-5);
    MoveList list(1);
    const Unit added = unit(table, type, 0);
    list.Add(0, {&ids[static_cast<std::size_t>(table)], 1}, {&added, 1});
    const auto moves = list.Sorted();
    const auto priced = pricer.Price(list, moves);
    ASSERT_TRUE(priced[0].allowed);
    solution.Remove(ids[static_cast<std::size_t>(table)]);
    ids[static_cast<std::size_t>(table)] = solution.Add(added);
    EXPECT_NEAR(priced[0].cost_ms, price_of_solution(), 1e-5) << table << " " << ToText(type);
  }
}

struct Asked {
  int rank;
  int without;
  int with;
};

// Ids of the shards that a rank holds.
std::vector<int> ShardsOn(const Solution& solution, int rank) {
  std::vector<int> shards;
  for (const Unit& unit : solution.Units()) {
    for (int i = 0; i < unit.shards.count; ++i) {
      if (solution.RankOf(unit, i) == rank) shards.push_back(unit.shards.at(i));
    }
  }
  return shards;
}

TEST(MovePricerTest, RanksCostWhatTheHeadSaysOfWhatTheyWouldHold) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    const ShardTable& table = bed.bench.shard_table;
    MovePricer& costs = bed.bench.pricer;
    for (int round = 0; round < 20; ++round) {
      const int rank =
          static_cast<int>(bed.random().Below(static_cast<std::uint64_t>(bed.num_ranks())));
      std::vector<int> held = ShardsOn(bed.bench.solution, rank);
      Asked asked{rank, -1, -1};
      if (!held.empty() && round % 2 == 0) {
        asked.without = held.back();
        held.pop_back();
      }
      if (round % 3 != 0) {
        asked.with = bed.RandomUnit().shards.full;
        held.push_back(asked.with);
      }
      const auto slot = costs.FindCost(asked.rank, asked.without, asked.with);
      costs.PredictCosts();
      if (held.empty()) {
        EXPECT_EQ(costs.compute_ms(rank, slot), 0);
        continue;
      }
      std::vector<float> sum;
      for (std::size_t w = 0; w < table.width(); ++w) {
        double value = 0;
        for (const int shard : held) value += static_cast<double>(table.phi(shard)[w]);
        sum.push_back(static_cast<float>(value));
      }
      ComputeCost cost;
      bed.model.ComputeCosts(sum, {&cost, 1});
      const float ms = cost.total_ms * bed.model.compute_scale(static_cast<std::size_t>(rank));
      EXPECT_NEAR(costs.compute_ms(rank, slot), ms, 1e-5 * static_cast<double>(ms));
    }
  }
}

TEST(MovePricerTest, WhatIsKnownIsNotPredictedAgain) {
  RefineBed bed(4);
  ASSERT_TRUE(bed.LoadLegal());
  MovePricer& costs = bed.bench.pricer;
  for (int r = 0; r < bed.num_ranks(); ++r) costs.FindCost(r, -1, -1);
  costs.PredictCosts();
  const auto predicted = bed.context.statistics().compute_evaluations;
  costs.TrimCosts();
  const std::vector<double> nothing(bed.bench.shard_table.width(), 0.0);
  for (int r = 0; r < bed.num_ranks(); ++r) {
    EXPECT_EQ(costs.FindCost(r, -1, -1),
              costs.FindCost(r, bed.bench.solution.rank(r), nothing.data()));
  }
  costs.PredictCosts();
  EXPECT_EQ(bed.context.statistics().compute_evaluations, predicted);
}

// Whether it is asked for as a change or held already.
TEST(MovePricerTest, AChangeAndItsResultAreOneContent) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    RefineBed bed(seed);
    if (!bed.request.constraints.empty()) continue;
    Solution& solution = bed.bench.solution;
    MovePricer& costs = bed.bench.pricer;
    for (int i = 0; i < 30; ++i) {
      const Unit unit = bed.RandomUnit();
      if (unit.spread() != Spread::kRank) continue;
      const auto with = costs.FindCost(unit.place, -1, unit.shards.full);
      const auto before = costs.FindCost(unit.place, -1, -1);
      solution.Add(unit);
      EXPECT_EQ(costs.FindCost(unit.place, -1, -1), with);
      EXPECT_EQ(costs.FindCost(unit.place, unit.shards.full, -1), before);
      EXPECT_EQ(costs.FindCost(unit.place, unit.shards.full, unit.shards.full), with);
      EXPECT_NE(with, before);
    }
  }
}

TEST(MovePricerTest, AdditiveComputeIsTheSumOfShardsAlone) {
  RefineBed bed(4, true);
  ASSERT_TRUE(bed.LoadLegal());
  MovePricer& costs = bed.bench.pricer;
  const auto predicted = bed.context.statistics().compute_evaluations;
  for (int r = 0; r < bed.num_ranks(); ++r) {
    double sum_ms = 0;
    for (const int shard : ShardsOn(bed.bench.solution, r)) {
      sum_ms += static_cast<double>(bed.bench.shard_table.shard_cost_ms(shard));
    }
    EXPECT_NEAR(costs.compute_ms(r, costs.FindCost(r, -1, -1)), sum_ms, 1e-5 * sum_ms);
  }
  EXPECT_EQ(bed.context.statistics().compute_evaluations, predicted);
}

}  // namespace
}  // namespace neuroshard
