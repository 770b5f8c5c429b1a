#include "server/search/goals/second_goals.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/stash.h"
#include "server/search/run_search.h"
#include "server/search/testing/all_plans.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_migration.h"
#include "tests/support/random_needs.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::AddRandomConstraints;
using ::neuroshard::testing::AddRandomMigration;
using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomGoals;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum PlanMeasure;

// A clock that has run out when the first plan is there.
class StopAtFirst final : public SearchObserver {
 public:
  explicit StopAtFirst(ManualStop& stop) : stop_(stop) {}
  void OnImprovement(const SearchResult&) override { stop_.Stop(); }
  void OnProgress(double) override {}

 private:
  ManualStop& stop_;
};

double Value(PlanMeasure measure, const PlanRequest& request, const SearchResult& result) {
  return ValueOf(measure, request, result.plan, result.cost);
}

PlanRequest WithGoals(PlanRequest request, std::vector<PlanGoal> goals) {
  request.search.goals = std::move(goals);
  return request;
}

TEST(SecondGoalsTest, PlansAreLegalAndWithinAllTolerances) {
  Random random(3);
  int solved = 0, improved = 0;
  for (int i = 0; i < testing::Trials(120); ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 5));
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 8, .torchrec_memory = true});
    if (random.Below(2) == 0) AddRandomConstraints(random, request, 4);
    if (random.Below(2) == 0) AddRandomMigration(random, request);
    request.search.refine_steps = 20;
    request.search.max_length = 2;
    const BoundCostModel bound = BoundTo(request, model);
    const auto cheapest = RunSearch(request, bound, NeverStop(), nullptr);
    const std::vector<PlanGoal> goals = RandomGoals(random, request);
    const PlanRequest asked = WithGoals(request, goals);
    const auto result = RunSearch(asked, bound, NeverStop(), nullptr);
    ASSERT_EQ(result.ok(), cheapest.ok()) << i << result.status();
    if (!result.ok()) continue;
    ++solved;
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty()) << i;
    NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request, result->plan, bound));
    EXPECT_EQ(result->cost, cost) << i;
    const double least_ms = Value(kCost, request, *cheapest);
    EXPECT_LE(Value(kCost, request, *result), least_ms * (1 + goals[0].tolerance) * (1 + 1e-6))
        << i;
    ASSERT_EQ(result->trades.size(), goals.size() - 1);
    for (std::size_t g = 1; g < goals.size(); ++g) {
      const GoalTrade& trade = result->trades[g - 1];
      EXPECT_EQ(trade.measure, goals[g].measure);
      ASSERT_EQ(trade.points.size(), 3u);
      EXPECT_GE(trade.points[0].value, trade.points[1].value) << i;
      EXPECT_GE(trade.points[1].value, trade.points[2].value) << i;
      EXPECT_LE(Value(goals[g].measure, request, *result),
                trade.points[2].value * (1 + goals[g].tolerance) + 1e-6)
          << i << ToText(goals[g].measure);
      if (trade.points[2].value < trade.points[0].value) ++improved;
    }
    const TradePoint& first = result->trades[0].points[0];
    EXPECT_DOUBLE_EQ(first.cost_ms, least_ms);
    EXPECT_DOUBLE_EQ(first.value, Value(goals[1].measure, request, *cheapest));
    EXPECT_LE(result->trades[0].points[1].cost_ms,
              least_ms * (1 + goals[0].tolerance / 2) * (1 + 1e-6))
        << i;
  }
  EXPECT_GE(solved, testing::FewestCases(41));
  EXPECT_GE(improved, testing::FewestCases(21));
}

// Of all legal plans that cost no more, the least value of the measure.
double LeastOfAll(const PlanRequest& request, const BoundCostModel& model, PlanMeasure measure,
                  double limit_ms) {
  double least = std::numeric_limits<double>::infinity();
  Plan plan;
  plan.world_size = request.topology.num_ranks();
  plan.local_world_size = request.topology.ranks_per_host();
  const auto first = AllTablePlans(request, 0);
  const auto second = AllTablePlans(request, 1);
  for (const TablePlan& a : first) {
    for (const TablePlan& b : second) {
      plan.tables = {a, b};
      if (!CheckPlan(request, plan).empty()) continue;
      const auto cost = PricePlan(request, plan, model);
      if (!cost.ok() || ValueOf(kCost, request, plan, *cost) > limit_ms) continue;
      least = std::min(least, ValueOf(measure, request, plan, *cost));
    }
  }
  return least;
}

TEST(SecondGoalsTest, TinyRequestsGetTheLeastOfAllPlans) {
  Random random(5);
  int tried = 0, least_found = 0;
  for (int i = 0; i < testing::Trials(60); ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 3));
    PlanRequest request = RandomPlanRequest(
        random, {.max_tables = 2, .max_ranks = 3, .dims = {4, 8}, .ranks_per_host = {1, 2}});
    if (request.tables.size() != 2) continue;
    AddRandomMigration(random, request);
    const BoundCostModel bound = BoundTo(request, model);
    for (const PlanMeasure measure : {kMaxMemory, kMovedBytes, kCutTables, kExchanges}) {
      const auto result =
          RunSearch(WithGoals(request, {{kCost, 0.1}, {measure}}), bound, NeverStop(), nullptr);
      if (!result.ok()) continue;
      const double limit_ms = result->trades[0].points[0].cost_ms * 1.1 * (1 + 1e-9);
      const double least = LeastOfAll(request, bound, measure, limit_ms);
      const double found = Value(measure, request, *result);
      EXPECT_GE(found, least * (1 - 1e-9)) << i << ToText(measure);
      ++tried;
      if (found <= least * 1.01) ++least_found;
    }
  }
  EXPECT_GE(tried, testing::FewestCases(41));
  EXPECT_GT(least_found, 0.9 * tried);
}

// Some tables, all of them sharded, are stashed, with host memory for copies or not. is_open: the
// planner may add others.
void AddRandomStash(Random& random, bool is_open, PlanRequest& request) {
  using enum ShardingType;
  request.constraints.sharding_types = {kTableWise, kColumnWise, kRowWise, kTableRowWise};
  for (Table& table : request.tables) {
    table.stash_weights = random.Below(4) > (is_open ? 2u : 0u);
  }
  if (random.Below(3) == 0) {
    double weights = 0;
    for (const Table& table : request.tables) {
      weights += static_cast<double>(table.num_embeddings * table.embedding_dim * 4);
    }
    const std::vector<HostRanks> hosts = request.topology.hosts();
    const double share = (0.5 + random.UniformReal()) / static_cast<double>(hosts.size());
    request.topology.host_memory_bytes.assign(hosts.size(),
                                              static_cast<std::int64_t>(share * weights));
    TableRule& on_devices = request.constraints.tables.emplace_back();
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      on_devices.tables.push_back(static_cast<int>(t));
    }
    on_devices.compute_kernels = {ComputeKernel::kFused, ComputeKernel::kDense};
  }
  if (!is_open) return;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Device& device : request.topology.devices) {
    least =
        std::min(least, device.memory_bytes - ReserveBytes(request.memory, device.memory_bytes));
  }
  request.memory.dense_bytes = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(0.6 * random.UniformReal() * static_cast<double>(least)));
}

TEST(SecondGoalsTest, TinyRequestsStashTheLeastOfAllPlans) {
  for (const bool is_open : {false, true}) {
    Random random(11);
    int tried = 0, least_found = 0, improved = 0;
    for (int i = 0; i < testing::Trials(80); ++i) {
      const ConcaveCostModel model(static_cast<std::uint64_t>(i % 3));
      PlanRequest request = RandomPlanRequest(
          random, {.max_tables = 2, .max_ranks = 3, .dims = {4, 8}, .ranks_per_host = {1, 2}});
      if (request.tables.size() != 2) continue;
      AddRandomStash(random, is_open, request);
      const BoundCostModel bound = BoundTo(request, model);
      const auto result =
          RunSearch(WithGoals(request, {{kCost, 0.3}, {kMaxStash}}), bound, NeverStop(), nullptr);
      if (!result.ok()) continue;
      EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty()) << i;
      const std::vector<TradePoint>& points = result->trades[0].points;
      const double limit_ms = points[0].cost_ms * 1.3 * (1 + 1e-9);
      const double least = LeastOfAll(request, bound, kMaxStash, limit_ms);
      const double found = Value(kMaxStash, request, *result);
      EXPECT_EQ(found, points[2].value) << i;
      EXPECT_GE(found, least) << i;
      ++tried;
      if (found <= least * 1.01) ++least_found;
      if (found < points[0].value) ++improved;
    }
    EXPECT_GE(tried, testing::FewestCases(20)) << is_open;
    EXPECT_GE(improved, testing::FewestCases(5)) << is_open;
    EXPECT_GE(least_found, testing::FewestCases((8 * tried + 9) / 10)) << is_open;
  }
}

// Tables of 16 MiB, of which two ranks have room for four each.
PlanRequest SixTables() {
  PlanRequest request;
  request.topology.devices = {{.memory_bytes = 64 << 20}, {.memory_bytes = 64 << 20}};
  request.memory.rule = MemoryRule::kWeightsOnly;
  for (int t = 0; t < 6; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(t);
    table.num_embeddings = 1 << 16;
    table.embedding_dim = 64;
    // Costs are even with one of the first two beside four others.
    table.pooling_factor = t < 2 ? 40 : 10;
  }
  request.constraints.sharding_types = {ShardingType::kTableWise};
  return request;
}

TEST(SecondGoalsTest, MemoryIsEvenedOutWhereItCostsNoMoreThanTheTolerance) {
  const PlanRequest request = SixTables();
  const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
  const auto result =
      RunSearch(WithGoals(request, {{kCost, 1}, {kMaxMemory}}), model, NeverStop(), nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_DOUBLE_EQ(Value(kMaxMemory, request, *result), 0.75);
  EXPECT_EQ(Value(kCutTables, request, *result), 0);
  EXPECT_EQ(Value(kExchanges, request, *result), 1);
}

// Devices that the tables fill to 75 %: a tolerance of a half allows more than there is.
TEST(SecondGoalsTest, ALooseLimitOnMemoryIsNoMoreMemory) {
  PlanRequest request = SixTables();
  request.constraints = {};
  for (Device& device : request.topology.devices) device.memory_bytes = 52 << 20;
  const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
  const auto result =
      RunSearch(WithGoals(request, {{kCost, 0.5}, {kMaxMemory, 0.5}, {kCutTables}, {kExchanges}}),
                model, NeverStop(), nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
  EXPECT_EQ(result->trades.size(), 3u);
}

// What is spread evenly for the least cost, without room in a stash for two.
TEST(SecondGoalsTest, StashesAreEvenedOutWhereItCostsNoMoreThanTheTolerance) {
  PlanRequest request = SixTables();
  for (std::size_t t = 2; t < 6; ++t) request.tables[t].stash_weights = true;
  const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
  const auto result =
      RunSearch(WithGoals(request, {{kCost, 1}, {kMaxStash}}), model, NeverStop(), nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Value(kMaxStash, request, *result), 2 << 24);
  // Room for two beside dense layers: at least one table leaves each rank.
  request = SixTables();
  request.memory.dense_bytes = 2 << 24;
  const auto open =
      RunSearch(WithGoals(request, {{kCost, 1}, {kMaxStash}}), model, NeverStop(), nullptr);
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(Value(kMaxStash, request, *open), 1 << 24);
}

// Without host memory a rule's `fused_uvm` is none, whatever memory the search for a smaller stash
// gives to hosts for the copies: with it the second device would have room for a stashed table.
TEST(SecondGoalsTest, AStashIsNoMemoryForOtherKernels) {
  PlanRequest request = SixTables();
  request.tables.resize(3);
  for (std::size_t t : {0, 1}) request.tables[t].stash_weights = true;
  Table& small = request.tables[2];
  small.num_embeddings /= 2;
  small.pooling_factor = 1e-3;
  request.topology.devices[0].memory_bytes = 1 << 25;
  request.topology.devices[1].memory_bytes = 1 << 24;
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {2};
  rule.ranks = {1};
  rule.compute_kernels = {ComputeKernel::kFused, ComputeKernel::kFusedUvm};
  const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
  const auto result =
      RunSearch(WithGoals(request, {{kCost, 1}, {kMaxStash}}), model, NeverStop(), nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
  EXPECT_EQ(Value(kMaxStash, request, *result), 1 << 25);
}

// Wherever a plan has a stash that leaves dense layers room, one is found, without goals as well;
// where no time is left to look for it, that is the error.
TEST(SecondGoalsTest, TinyRequestsLeaveDenseLayersRoomWhereAPlanCan) {
  Random random(13);
  int possible = 0, found = 0, not_the_cheapest = 0, without_time = 0;
  for (int i = 0; i < testing::Trials(150); ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 3));
    PlanRequest request = RandomPlanRequest(
        random, {.max_tables = 2, .max_ranks = 3, .dims = {4, 8}, .ranks_per_host = {1, 2}});
    if (request.tables.size() != 2) continue;
    AddRandomStash(random, true, request);
    request.memory.dense_bytes = request.memory.dense_bytes * 7 / 4;
    const BoundCostModel bound = BoundTo(request, model);
    const double least = LeastOfAll(request, bound, kMaxStash, 1e300);
    const auto result = RunSearch(request, bound, NeverStop(), nullptr);
    const bool is_possible = least < 0x1.0p50;
    possible += is_possible;
    if (!result.ok()) continue;
    ++found;
    EXPECT_TRUE(is_possible) << i;
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty()) << i;
    EXPECT_TRUE(ChooseStash(request, result->plan).ok()) << i;
    const auto by_goals = RunSearch(WithGoals(request, {{kCost, 0.3}, {kMaxStash}, {kCutTables}}),
                                    bound, NeverStop(), nullptr);
    ASSERT_TRUE(by_goals.ok()) << i << by_goals.status();
    EXPECT_THAT(CheckPlan(request, by_goals->plan), IsEmpty()) << i;
    EXPECT_TRUE(ChooseStash(request, by_goals->plan).ok()) << i;
    EXPECT_LE(Value(kMaxStash, request, *by_goals), Value(kMaxStash, request, *result)) << i;
    ManualStop stop;
    StopAtFirst observer(stop);
    const auto cut = RunSearch(request, bound, stop, &observer);
    if (!cut.ok()) {
      ++without_time;
      EXPECT_THAT(cut, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                HasSubstr("memory.dense_bytes: of the cheapest plan too little")));
    }
    PlanRequest without = request;
    without.memory.dense_bytes = 0;
    const auto cheapest = RunSearch(without, bound, NeverStop(), nullptr);
    ASSERT_TRUE(cheapest.ok());
    if (!ChooseStash(request, cheapest->plan).ok()) ++not_the_cheapest;
  }
  EXPECT_GE(possible, testing::FewestCases(41));
  EXPECT_GE(not_the_cheapest, testing::FewestCases(4));
  EXPECT_EQ(found, possible);
  EXPECT_GE(without_time, testing::FewestCases(3));
}

TEST(SecondGoalsTest, AStopLeavesWhatThereIs) {
  const PlanRequest request = WithGoals(SixTables(), {{kCost, 0.1}, {kMaxMemory}, {kCutTables}});
  const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
  ManualStop stop;
  StopAtFirst observer(stop);
  const auto result = RunSearch(request, model, stop, &observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->trades, IsEmpty());
  EXPECT_TRUE(result->statistics.time_limit_reached);
  EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
}

}  // namespace
}  // namespace neuroshard
