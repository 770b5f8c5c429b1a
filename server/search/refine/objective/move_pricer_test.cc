#include "server/search/refine/objective/move_pricer.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/evaluate/price_plan.h"
#include "server/search/refine/solution/plan_units.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

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

}  // namespace
}  // namespace neuroshard
