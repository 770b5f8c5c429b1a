#include "server/search/neuroshard/neuroshard_strategy.h"

#include <gmock/gmock.h>

#include <vector>

#include "server/evaluate/check_plan.h"
#include "server/search/run_search.h"
#include "server/search/testing/exhaustive_search.h"
#include "server/search/testing/reference_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"
#include "tests/support/unsure_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::RandomRequestShape;
using ::neuroshard::testing::StatusIs;
using ::neuroshard::testing::UnsureCostModel;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Search options at random too, small enough for the reference.
PlanRequest RandomSearchRequest(Random& random, const RandomRequestShape& shape) {
  PlanRequest request = RandomPlanRequest(random, shape);
  request.search.strategy = "neuroshard";
  request.search.beam_width = static_cast<int>(random.Between(1, 3));
  request.search.num_candidates = static_cast<int>(random.Between(1, 5));
  request.search.max_length = static_cast<int>(random.Between(0, 4));
  request.search.search_steps = static_cast<int>(random.Between(1, 11));
  return request;
}

double Cost(const PlanRequest& request, const CostModel& model) {
  const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
  return result.ok() ? result->cost.embedding_cost_ms : std::numeric_limits<double>::infinity();
}

TEST(NeuroShardStrategyTest, MakesTheSamePlansAsTheReference) {
  Random random(11);
  int same = 0;
  int with_splits = 0;
  for (int i = 0; i < testing::Trials(3000); ++i) {
    const ConcaveCostModel model(random.Next());
    const PlanRequest request = RandomSearchRequest(random, {.min_slack = 1.0});
    const ReferenceResult reference = ReferenceSearch(request, BoundTo(request, model));
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    if (reference.plan.tables.empty()) continue;
    ASSERT_THAT(result, IsOk()) << "instance " << i;
    if (reference.uncut_found) {
      ASSERT_EQ(result->plan, reference.plan) << "instance " << i;
      ++same;
      with_splits += result->statistics.splits > 0;
    }
    // Where the dim cap was in the way of the uncut tables, the mended search may only be cheaper.
    EXPECT_LE(result->cost.embedding_cost_ms, reference.cost_ms * (1 + 1e-6)) << "instance " << i;
  }
  EXPECT_GE(same, testing::FewestCases(1001));
  EXPECT_GE(with_splits, testing::FewestCases(101));
}

TEST(NeuroShardStrategyTest, PricesItsPlansAsTheReference) {
  Random random(12);
  for (int i = 0; i < 100; ++i) {
    const ConcaveCostModel model(random.Next());
    const PlanRequest request = RandomSearchRequest(random, {.min_slack = 1.5});
    const ReferenceResult reference = ReferenceSearch(request, BoundTo(request, model));
    if (!reference.uncut_found) continue;
    const double cost_ms = Cost(request, model);
    EXPECT_NEAR(cost_ms, reference.cost_ms, 1e-5 * cost_ms) << "instance " << i;
  }
}

TEST(NeuroShardStrategyTest, SplitsNeverMakeItWorse) {
  Random random(13);
  for (int i = 0; i < 200; ++i) {
    const ConcaveCostModel model(random.Next());
    PlanRequest request = RandomPlanRequest(random);
    request.search.strategy = "neuroshard";
    request.search.max_length = 3;
    const double with_splits_ms = Cost(request, model);
    request.search.max_length = 0;
    EXPECT_LE(with_splits_ms, Cost(request, model) * (1 + 1e-6)) << "instance " << i;
  }
}

std::size_t NumShards(const Plan& plan) {
  std::size_t shards = 0;
  for (const TablePlan& table : plan.tables) shards += table.shards.size();
  return shards;
}

// The same prices, once with an error that the model states.
TEST(NeuroShardStrategyTest, CutsThatPayLessThanTheModelCanTellAreNotMade) {
  Random random(17);
  int fewer = 0;
  for (int i = 0; i < testing::Trials(400); ++i) {
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 12, .dims = {8, 16, 32, 64}});
    request.search.strategy = "neuroshard";
    request.search.max_length = 6;
    const bool is_compared = i % 4 == 0;  // with the original's plans
    request.memory.rule = is_compared ? MemoryRule::kWeightsOnly : MemoryRule::kFull;
    const auto sure = RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr);
    const auto unsure =
        RunSearch(request, BoundTo(request, UnsureCostModel()), NeverStop(), nullptr);
    ASSERT_EQ(sure.ok(), unsure.ok()) << "instance " << i;
    if (!sure.ok()) continue;
    if (is_compared) {
      EXPECT_EQ(unsure->plan, sure->plan) << "instance " << i;
      continue;
    }
    EXPECT_THAT(CheckPlan(request, unsure->plan), IsEmpty()) << "instance " << i;
    EXPECT_LE(unsure->cost.embedding_cost_ms, sure->cost.embedding_cost_ms * (1.005 + 1e-6))
        << "instance " << i;
    ASSERT_LE(NumShards(unsure->plan), NumShards(sure->plan)) << "instance " << i;
    fewer += NumShards(unsure->plan) < NumShards(sure->plan) ? 1 : 0;
  }
  EXPECT_GE(fewer, testing::FewestCases(11));
}

TEST(NeuroShardStrategyTest, NeverBeatsTheOptimum) {
  Random random(14);
  for (int i = 0; i < 60; ++i) {
    const ConcaveCostModel model(random.Next());
    PlanRequest request =
        RandomPlanRequest(random, {.max_tables = 4, .max_ranks = 3, .dims = {4, 8, 16}});
    request.search.strategy = "neuroshard";
    request.search.max_length = 2;
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    if (!result.ok() || result->statistics.splits > 2) continue;
    bool halves_only = true;
    for (const TablePlan& table : result->plan.tables) {
      for (const Shard& shard : table.shards) halves_only = halves_only && shard.cols % 4 == 0;
    }
    ASSERT_TRUE(halves_only);
    const ExhaustiveResult optimum = ExhaustiveSearch(request, BoundTo(request, model), 2);
    if (optimum.feasible) {
      EXPECT_GE(result->cost.embedding_cost_ms, optimum.best_cost_ms * (1 - 1e-6));
    }
  }
}

TEST(NeuroShardStrategyTest, FindsAPlanExactlyWhenOneExists) {
  Random random(15);
  const ConcaveCostModel model;
  int feasible = 0;
  for (int i = 0; i < 300; ++i) {
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 4,
                                                     .max_ranks = 3,
                                                     .dims = {1, 3, 4, 6, 8, 12},
                                                     .min_slack = 0.95,
                                                     .max_slack = 1.4});
    request.search.strategy = "neuroshard";
    request.search.max_length = static_cast<int>(random.Between(0, 3));
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    ASSERT_EQ(result.ok(), AnyColumnPackingFits(request)) << "instance " << i;
    feasible += result.ok();
    if (result.ok()) {
      EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
    } else {
      EXPECT_THAT(result,
                  StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no plan can exist")));
    }
  }
  EXPECT_GT(feasible, 50);
  EXPECT_LT(feasible, 290);
}

// Three equal tables on two ranks: one rank gets two of them, 4/3 of its share, and with factors up
// to 1.5 that is a plan. With five ranks every table is 5/3 of a share.
TEST(NeuroShardStrategyTest, TheDimCapIsSoftWhereItLeavesNoPlan) {
  PlanRequest request;
  request.search.strategy = "neuroshard";
  for (int t = 0; t < 3; ++t) {
    Table table;
    table.name = "t" + std::to_string(t);
    table.num_embeddings = 1000;
    table.embedding_dim = 4;
    request.tables.push_back(table);
  }
  request.topology.devices.assign(5, {0, std::int64_t{1} << 30});
  const ConcaveCostModel model;
  ASSERT_TRUE(ReferenceSearch(request, BoundTo(request, model)).plan.tables.empty());

  NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                          RunSearch(request, BoundTo(request, model), NeverStop(), nullptr));

  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
  EXPECT_EQ(result.cost.ranks[3].compute_ms, 0) << "an empty rank costs nothing";
  EXPECT_EQ(result.cost.ranks[4].compute_ms, 0);
}

TEST(NeuroShardStrategyTest, CutsMoreOftenThanMaxLengthWhereOnlyThatFits) {
  PlanRequest request;
  request.search.strategy = "neuroshard";
  request.memory.rule = MemoryRule::kWeightsOnly;
  Table table;
  table.name = "large";
  table.num_embeddings = 1000;
  table.embedding_dim = 64;
  request.tables.push_back(table);
  request.topology.devices.assign(8, {0, 32'000});  // 8 columns each
  request.search.max_length = 1;
  const ConcaveCostModel model;

  NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                          RunSearch(request, BoundTo(request, model), NeverStop(), nullptr));

  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
  EXPECT_EQ(result.statistics.splits, 7);
}

PlanRequest ManyTables(int num_tables, int num_ranks) {
  Random random(16);
  PlanRequest request;
  request.search.strategy = "neuroshard";
  for (int t = 0; t < num_tables; ++t) {
    Table table;
    table.name = "t" + std::to_string(t);
    table.num_embeddings = random.Between(100, 100'000);
    table.embedding_dim = std::int64_t{4} << random.Between(0, 5);
    table.pooling_factor = random.UniformReal() * 30;
    request.tables.push_back(table);
  }
  request.topology.devices.assign(static_cast<std::size_t>(num_ranks), {0, std::int64_t{1} << 32});
  return request;
}

TEST(NeuroShardStrategyTest, ManyTablesAndRanksRunInSeveralBatches) {
  PlanRequest request = ManyTables(150, 64);
  request.search.max_length = 1;
  const ConcaveCostModel model;

  NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                          RunSearch(request, BoundTo(request, model), NeverStop(), nullptr));

  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
  request.search.strategy = "random";
  EXPECT_LT(result.cost.embedding_cost_ms, Cost(request, model));
}

// Stops at a poll in the middle of the first inner search.
class StopAfterPolls final : public StopSignal {
 public:
  explicit StopAfterPolls(int polls) : left_(polls) {}
  bool ShouldStop() const override { return left_ == 0 || --left_ == 0; }

 private:
  mutable int left_;
};

TEST(NeuroShardStrategyTest, LargeRequestsHaveAPlanBeforeTheFirstInnerSearchEnds) {
  const PlanRequest request = ManyTables(2000, 100);
  const ConcaveCostModel model;
  const StopAfterPolls stop(2000 + 10);

  NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                          RunSearch(request, BoundTo(request, model), stop, nullptr));

  EXPECT_TRUE(result.statistics.time_limit_reached);
  EXPECT_EQ(result.statistics.plans_evaluated, 1);
  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
}

// Every rank has room for 20 tables and a half, and there is one table more than 20 a rank: greedy
// gives up at the last one, which has to be cut.
TEST(NeuroShardStrategyTest, LargeRequestsThatNeedCutsHaveAPlanAsSoon) {
  PlanRequest request = ManyTables(2001, 100);
  request.memory.rule = MemoryRule::kWeightsOnly;
  for (Table& table : request.tables) {
    table.num_embeddings = 1000;
    table.embedding_dim = 64;
  }
  for (Device& device : request.topology.devices) device.memory_bytes = 1000 * 64 * 4 * 41 / 2;
  const ConcaveCostModel model;
  const StopAfterPolls stop(2001 + 10);

  NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                          RunSearch(request, BoundTo(request, model), stop, nullptr));

  EXPECT_TRUE(result.statistics.time_limit_reached);
  EXPECT_EQ(result.statistics.splits, 1);
  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
}

}  // namespace
}  // namespace neuroshard
