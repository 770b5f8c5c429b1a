// Rows in proportion to memory or speed, found by `refine`, on fleets whose ranks differ.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/testing/violation_is.h"
#include "server/search/run_search.h"
#include "server/search/testing/all_plans.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomPlanRequest;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kMiB = 1 << 20;

// One table of 200 MiB that may be row_wise alone, on a host of two ranks with 40 MiB and one of two
// with 80, which are twice as fast.
PlanRequest TwoKinds() {
  PlanRequest request;
  request.global_batch_size = 1024;
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.topology.devices = {{0, 40 * kMiB}, {0, 40 * kMiB}, {1, 80 * kMiB}, {1, 80 * kMiB}};
  for (const std::size_t rank : {2, 3}) request.topology.devices[rank].compute_speed = 2;
  Table& table = request.tables.emplace_back();
  table.name = "t";
  table.embedding_dim = 64;
  table.num_embeddings = 200 * kMiB / (64 * 4);
  table.pooling_factor = 500;
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {0};
  rule.sharding_types = {ShardingType::kRowWise};
  return request;
}

StatusOr<SearchResult> Refined(const PlanRequest& request) {
  return RunSearch(request, BoundTo(request, *MakeAnalyticCostModel()), NeverStop(), nullptr);
}

std::vector<std::int64_t> RowsOf(const TablePlan& table) {
  std::vector<std::int64_t> rows;
  for (const Shard& shard : table.shards) rows.push_back(shard.rows);
  return rows;
}

TEST(RowProportionTest, APlanExistsWhereEvenBlocksFitNowhere) {
  PlanRequest request = TwoKinds();
  const StatusOr<SearchResult> even = Refined(request);
  EXPECT_TRUE(absl::IsFailedPrecondition(even.status())) << even.status();
  request.constraints.tables[0].row_proportion = RowProportion::kMemory;
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult result, Refined(request));
  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
  EXPECT_THAT(RowsOf(result.plan.tables[0]), ElementsAre(136533, 136533, 273067, 273067));
}

TEST(RowProportionTest, RowsBySpeedCostLess) {
  PlanRequest request = TwoKinds();
  for (Device& device : request.topology.devices) device.memory_bytes = 400 * kMiB;
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult even, Refined(request));
  request.constraints.tables[0].row_proportion = RowProportion::kSpeed;
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult by_speed, Refined(request));
  EXPECT_THAT(CheckPlan(request, by_speed.plan), IsEmpty());
  EXPECT_LT(by_speed.cost.embedding_cost_ms, 0.8 * even.cost.embedding_cost_ms);
  // A plan made elsewhere is held to the same blocks.
  EXPECT_THAT(CheckPlan(request, even.plan),
              ::testing::Contains(ViolationIs("plan.tables[0].shards[0].rows",
                                              "in proportion to speed (row_proportion)")));
}

TEST(RowProportionTest, TwoProportionsOfATableContradictEachOther) {
  PlanRequest request = TwoKinds();
  request.constraints.tables[0].row_proportion = RowProportion::kMemory;
  request.constraints.tables.push_back(request.constraints.tables[0]);
  request.constraints.tables[1].sharding_types.clear();
  request.constraints.tables[1].row_proportion = RowProportion::kSpeed;
  const StatusOr<SearchResult> result = Refined(request);
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
  EXPECT_THAT(Message(result.status()), AllOf(HasSubstr("constraints.tables[0].sharding_types"),
                                              HasSubstr("constraints.tables[0].row_proportion"),
                                              HasSubstr("constraints.tables[1].row_proportion")));
}

// A table in place in even blocks cannot stay so under the rule; elsewhere it moves.
TEST(RowProportionTest, APlanInPlaceChangesItsBlocks) {
  PlanRequest request = TwoKinds();
  for (Device& device : request.topology.devices) device.memory_bytes = 400 * kMiB;
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult even, Refined(request));
  request.constraints.tables[0].row_proportion = RowProportion::kSpeed;
  request.migration.emplace().previous = even.plan;
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult moved, Refined(request));
  EXPECT_THAT(CheckPlan(request, moved.plan), IsEmpty());
  // 1/4 of the rows on each rank before, 1/6 and 1/3 now: [1/6, 1/4), [1/3, 1/2) and [2/3, 3/4) move.
  request.migration->budget_bytes = 40 * kMiB;
  const StatusOr<SearchResult> over = Refined(request);
  EXPECT_TRUE(absl::IsFailedPrecondition(over.status()));
  EXPECT_THAT(Message(over.status()), HasSubstr("migration.budget_bytes"));
  request.migration->budget_bytes.reset();
  request.migration->only_types = {ShardingType::kRowWise};
  const StatusOr<SearchResult> kept = Refined(request);
  EXPECT_THAT(Message(kept.status()), AllOf(HasSubstr("row_proportion"), HasSubstr("only_types")));
  request.migration->previous = moved.plan;
  EXPECT_TRUE(Refined(request).ok());
}

// Against all plans, under both cost models, with speeds and memories that differ.
TEST(RowProportionTest, TinyRequestsAreSolvedAsWellAsTryingEveryPlanDoes) {
  Random random(61);
  int feasible = 0;
  int ragged = 0;
  double best_ms = 0;
  double refine_ms = 0;
  for (int i = 0; i < testing::Trials(200); ++i) {
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 2,
                                                     .max_ranks = 3,
                                                     .dims = {4, 8},
                                                     .ranks_per_host = {1, 2},
                                                     .torchrec_memory = true});
    for (Device& device : request.topology.devices) {
      device.compute_speed = static_cast<double>(random.Between(1, 3));
    }
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      TableRule& rule = request.constraints.tables.emplace_back();
      rule.tables = {static_cast<int>(t)};
      rule.row_proportion = kWords<RowProportion>[random.Below(2)].value;
      if (random.Below(2) == 0) {
        rule.sharding_types = {ShardingType::kTableWise, ShardingType::kRowWise};
        if (random.Below(2) == 0) rule.sharding_types = {ShardingType::kRowWise};
      }
    }
    if (random.Below(4) == 0) request.pipeline_type = PipelineType::kNone;
    request.search.strategy = "refine";
    const auto analytic = MakeAnalyticCostModel();
    const ConcaveCostModel concave(static_cast<std::uint64_t>(i % 7));
    const CostModel& model = i % 2 == 0 ? static_cast<const CostModel&>(concave) : *analytic;
    const BoundCostModel bound = BoundTo(request, model);
    const auto result = RunSearch(request, bound, NeverStop(), nullptr);
    const BestOfAllPlans best = BestOfAll(request, TypeSet(bound.sharding_types()), bound);
    ASSERT_EQ(result.ok(), best.feasible) << "request " << i << ": " << result.status();
    if (!best.feasible) continue;
    ++feasible;
    ASSERT_THAT(CheckPlan(request, result->plan), IsEmpty()) << i;
    NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request, result->plan, bound));
    ASSERT_EQ(result->cost, cost) << i;
    ASSERT_GE(cost.embedding_cost_ms, best.cost_ms * (1 - 1e-6)) << i;
    best_ms += best.cost_ms;
    refine_ms += cost.embedding_cost_ms;
    for (const TablePlan& table : result->plan.tables) {
      const std::vector<std::int64_t> rows = RowsOf(table);
      const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
      ragged += table.sharding_type == ShardingType::kRowWise && *most - *least > 1;
    }
  }
  EXPECT_GE(feasible, testing::FewestCases(61));
  EXPECT_GE(ragged, testing::FewestCases(26));
  EXPECT_LT(refine_ms, 1.01 * best_ms);
}

}  // namespace
}  // namespace neuroshard
