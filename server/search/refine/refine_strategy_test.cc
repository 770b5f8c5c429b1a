#include "server/search/refine/refine_strategy.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/base/violations.h"
#include "common/domain/memory_use.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/lay_out.h"
#include "server/evaluate/price_plan.h"
#include "server/search/run_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveComm;
using ::neuroshard::testing::ConcaveCompute;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomPlanRequest;

class EveryImprovement final : public SearchObserver {
 public:
  explicit EveryImprovement(const PlanRequest& request) : request_(request) {}

  void OnImprovement(const SearchResult& result) override {
    EXPECT_TRUE(CheckPlan(request_, result.plan).empty());
    if (!costs_ms.empty()) {
      EXPECT_LE(result.cost.embedding_cost_ms, costs_ms.back());  // as cheap with fewer cuts
    }
    costs_ms.push_back(result.cost.embedding_cost_ms);
  }
  void OnProgress(double) override {}

  std::vector<double> costs_ms;

 private:
  const PlanRequest& request_;
};

TEST(RefineStrategyTest, ImprovesOnNeuroShardAndNeverLoses) {
  Random random(31);
  double neuroshard_ms = 0;
  double refine_ms = 0;
  for (int i = 0; i < testing::Trials(60); ++i) {
    ModelProperties properties;
    if (i % 3 == 1) properties.measured_steps = testing::ConcaveSteps();
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 5), properties);
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 15});
    request.search.max_length = 3;
    request.search.refine_steps = 100;
    request.search.strategy = "neuroshard";
    const auto neuroshard = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    request.search.strategy = "refine";
    EveryImprovement observer(request);
    const auto refine = RunSearch(request, BoundTo(request, model), NeverStop(), &observer);
    ASSERT_EQ(refine.ok(), neuroshard.ok());
    if (!refine.ok()) continue;
    ASSERT_LE(refine->cost.embedding_cost_ms, neuroshard->cost.embedding_cost_ms);
    NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost,
                            PricePlan(request, refine->plan, BoundTo(request, model)));
    ASSERT_EQ(refine->cost, cost);
    neuroshard_ms += neuroshard->cost.embedding_cost_ms;
    refine_ms += refine->cost.embedding_cost_ms;
  }
  EXPECT_LT(refine_ms, 0.99 * neuroshard_ms);
}

// Local search alone would keep a type until its last table moves, which pays for nothing before.
TEST(RefineStrategyTest, GivesUpATypeWhoseExchangeCostsMoreThanItSaves) {
  Random random(34);
  const auto types_of = [](const Plan& plan) {
    std::set<ShardingType> types;
    for (const TablePlan& table : plan.tables) types.insert(table.sharding_type);
    return types.size();
  };
  std::size_t with_prices = 0;
  std::size_t without = 0;
  for (int i = 0; i < testing::Trials(20); ++i) {
    MeasuredSteps steps = testing::ConcaveSteps();
    steps.rates[0].exchange = {.whole_rows_ms = 1000, .cut_rows_ms = 1000, .replicas_ms = 1000};
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 15, .min_slack = 2});
    request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kRowWise,
                                          ShardingType::kDataParallel};
    request.search.strategy = "refine";
    for (Table& table : request.tables) table.module.clear();
    for (const bool prices : {false, true}) {
      ModelProperties properties;
      if (prices) properties.measured_steps = steps;
      const ConcaveCostModel model(3, properties, request.constraints.sharding_types);
      const auto plan = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
      if (!plan.ok()) break;
      (prices ? with_prices : without) += types_of(plan->plan);
      if (prices && request.topology.num_ranks() > 1) {
        EXPECT_EQ(types_of(plan->plan), 1U) << i;
      }
    }
  }
  EXPECT_LT(with_prices, without);
}

// Two shards of a table side by side on a rank are there because one would cost more.
TEST(RefineStrategyTest, NoCutBetweenColumnsOfARankIsLeftWhereItPaysNothing) {
  Random random(33);
  for (int i = 0; i < testing::Trials(200); ++i) {
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 15});
    request.search.refine_steps = random.Between(0, 20);
    request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
    request.search.strategy = "refine";
    const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
    const auto refine = RunSearch(request, model, NeverStop(), nullptr);
    if (!refine.ok()) continue;
    for (std::size_t t = 0; t < refine->plan.tables.size(); ++t) {
      const std::vector<Shard>& shards = refine->plan.tables[t].shards;
      for (std::size_t s = 1; s < shards.size(); ++s) {
        if (shards[s].rank != shards[s - 1].rank || shards.size() > 2) continue;
        Plan whole = refine->plan;
        whole.tables[t].shards[0].cols += whole.tables[t].shards[1].cols;
        whole.tables[t].shards.pop_back();
        whole.tables[t].sharding_type = ShardingType::kTableWise;
        NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request, whole, model));
        EXPECT_GT(cost.embedding_cost_ms, refine->cost.embedding_cost_ms) << "round " << i;
      }
    }
  }
}

TEST(RefineStrategyTest, TheSameStepsGiveTheSamePlan) {
  Random random(32);
  const ConcaveCostModel model;
  for (int i = 0; i < 20; ++i) {
    PlanRequest request = RandomPlanRequest(random);
    request.search.strategy = "refine";
    request.search.max_length = 2;
    request.search.refine_steps = 60;
    const auto first = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    const auto second = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    ASSERT_EQ(first.ok(), second.ok());
    if (first.ok()) {
      ASSERT_EQ(*first, *second);
    }
  }
}

// A plan in place costs neither time, where nothing may move, nor the good start, where all may.
TEST(RefineStrategyTest, APlanInPlaceIsNotSearchedForNothing) {
  Random random(36);
  const ConcaveCostModel model;
  double with_ms = 0;
  double without_ms = 0;
  int plans = 0;
  for (int i = 0; i < 30; ++i) {
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 15});
    request.search.strategy = "random";
    const auto before = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    if (!before.ok()) continue;
    ++plans;
    request.search.strategy = "refine";
    request.search.refine_steps = 0;
    const auto without = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    ASSERT_TRUE(without.ok());
    request.migration.emplace().previous = before->plan;
    const auto with = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    ASSERT_TRUE(with.ok());
    with_ms += with->cost.embedding_cost_ms;
    without_ms += without->cost.embedding_cost_ms;

    request.migration->budget_bytes = 0;
    request.search.refine_steps.reset();
    const auto kept = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    ASSERT_TRUE(kept.ok());
    EXPECT_EQ(kept->cost, before->cost);
    EXPECT_LE(kept->statistics.plans_evaluated, 1);
  }
  EXPECT_GT(plans, 15);
  EXPECT_LT(with_ms, 1.05 * without_ms);
}

// Two tables over the rows of both ranks, and one that may move.
TEST(RefineStrategyTest, AKernelThatItsTypeDoesNotHaveCannotStay) {
  const ConcaveCostModel model;
  PlanRequest request;
  Table& table = request.tables.emplace_back();
  table.name = "a";
  table.num_embeddings = 1000;
  table.embedding_dim = 16;
  request.topology.devices = {{0, 1 << 20}, {0, 1 << 20}};
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.search.strategy = "refine";
  Migration& migration = request.migration.emplace();
  TablePlan& plan = migration.previous.tables.emplace_back();
  plan.name = "a";
  plan.compute_kernel = ComputeKernel::kDense;
  plan.shards = {{0, 1000, 0, 16, 0}};
  migration.only_types = {ShardingType::kTableWise};
  const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr("migration.only_types"));
  migration.only_types.clear();
  EXPECT_TRUE(RunSearch(request, BoundTo(request, model), NeverStop(), nullptr).ok());
}

TEST(RefineStrategyTest, WhatMustStayAndCannotIsNamed) {
  const ConcaveCostModel model;
  PlanRequest request;
  for (const char* name : {"a", "b", "c"}) {
    Table table;
    table.name = name;
    table.num_embeddings = 1000;
    table.embedding_dim = 16;
    request.tables.push_back(table);
  }
  request.topology.devices = {{0, 1 << 20}, {0, 1 << 20}};
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.search.strategy = "refine";
  request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kRowWise};
  Migration& migration = request.migration.emplace();
  migration.only_types = {ShardingType::kTableWise};
  const auto rows_on = [](const char* name, int second) {
    TablePlan plan;
    plan.name = name;
    plan.sharding_type = ShardingType::kRowWise;
    plan.shards = {{0, 500, 0, 16, 0}, {500, 500, 0, 16, second}};
    return plan;
  };
  TablePlan whole;
  whole.name = "c";
  whole.shards = {{0, 1000, 0, 16, 5}};
  migration.previous.tables = {rows_on("a", 1), rows_on("b", 2), whole};
  const auto fields = [&] {
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
    std::vector<std::string> named;
    for (const Violation& violation : Violations::FromStatus(result.status())) {
      named.push_back(violation.field);
    }
    return named;
  };
  using Fields = std::vector<std::string>;
  EXPECT_EQ(fields(), Fields{"migration.previous.tables[1].shards[1].rank"});

  migration.previous.tables[1].shards[1].rank = 1;
  request.topology.devices[1].memory_bytes = 33'000;  // a and b take 64,000
  EXPECT_EQ(fields(), Fields{"migration.only_types"});

  request.topology.devices[1].memory_bytes = 64'000;
  const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->plan.tables[0].shards, migration.previous.tables[0].shards);
  EXPECT_EQ(result->plan.tables[1].shards, migration.previous.tables[1].shards);
  EXPECT_EQ(result->plan.tables[2].shards[0].rank, 0);

  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {2};
  rule.sharding_types = {ShardingType::kRowWise};
  EXPECT_EQ(fields(), (Fields{"constraints.tables[0].sharding_types", "migration.only_types"}));
}

// Whatever else there is to say: of many tables that may move, and of a host that shrank.
TEST(RefineStrategyTest, WhatMustStayAndCannotIsNamedAmongManyAndInHostMemory) {
  const ConcaveCostModel model;
  PlanRequest request;
  Migration& migration = request.migration.emplace();
  migration.only_types = {ShardingType::kTableWise};
  for (int t = 0; t < 150; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(t);
    table.num_embeddings = 1000;
    table.embedding_dim = 16;
    TablePlan& plan = migration.previous.tables.emplace_back();
    plan.name = table.name;
    plan.shards = {{0, 1000, 0, 16, t % 2}};
  }
  request.topology.devices = {{0, 1 << 30}, {0, 1 << 30}};
  request.topology.host_memory_bytes = {1 << 20};
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.search.strategy = "refine";
  TablePlan& stays = migration.previous.tables[70];
  stays.sharding_type = ShardingType::kRowWise;
  stays.compute_kernel = ComputeKernel::kFusedUvm;
  stays.shards = {{0, 500, 0, 16, 0}, {500, 500, 0, 16, 1}};
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {70};
  rule.max_shards = 1;
  const auto fault = [&] {
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
    const auto violations = Violations::FromStatus(result.status());
    return violations.empty() ? Violation{} : violations.front();
  };
  EXPECT_THAT(fault().field, ::testing::StartsWith("migration.previous.tables[70].shards"));
  request.constraints.tables.clear();
  request.topology.host_memory_bytes = {60'000};  // it takes 64,000
  EXPECT_EQ(fault().field, "migration.only_types");
  EXPECT_THAT(fault().description, ::testing::HasSubstr("of the memory of host 0"));
}

TEST(RefineStrategyTest, MoreThreadsNeverMakeAPlanDearer) {
  Random random(33);
  const ConcaveCostModel model;
  double alone_ms = 0;
  double together_ms = 0;
  for (int i = 0; i < testing::Trials(30); ++i) {
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 15});
    request.search.strategy = "refine";
    request.search.max_length = 2;
    request.search.refine_steps = 30;
    const auto alone = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    if (!alone.ok()) continue;
    request.search.max_threads = 3;
    EveryImprovement observer(request);
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult together,
                            RunSearch(request, BoundTo(request, model), NeverStop(), &observer));
    ASSERT_LE(together.cost.embedding_cost_ms, alone->cost.embedding_cost_ms);
    ASSERT_EQ(together.cost.embedding_cost_ms, observer.costs_ms.back());
    alone_ms += alone->cost.embedding_cost_ms;
    together_ms += together.cost.embedding_cost_ms;
  }
  EXPECT_LE(together_ms, alone_ms);
  EXPECT_TRUE(together_ms < alone_ms || testing::kUnderSanitizers);
}

// How many shards and ranks a search has predicted since it last asked whether to stop.
struct WorkSincePoll {
  std::size_t rows = 0;
  std::size_t most = 0;

  void Add(std::size_t more) { most = std::max(most, rows += more); }
};

// A cost model's compute half that counts what it is asked.
class MeteredCompute final : public ComputeModel {
 public:
  MeteredCompute(std::shared_ptr<const ComputeModel> compute, WorkSincePoll& work)
      : compute_(std::move(compute)), work_(work) {}

  int representation_width() const override { return compute_->representation_width(); }
  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    work_.Add(shards.size());
    compute_->Represent(conditions, shards, phi);
  }
  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    work_.Add(out.size());
    compute_->Costs(sums, out);
  }

 private:
  const std::shared_ptr<const ComputeModel> compute_;
  WorkSincePoll& work_;
};

class MeteredStop final : public StopSignal {
 public:
  explicit MeteredStop(WorkSincePoll& work) : work_(work) {}
  bool ShouldStop() const override {
    work_.rows = 0;
    return false;
  }

 private:
  WorkSincePoll& work_;
};

// Blocks that may not be cut further leave descent at plans that no move improves. A search with
// steps left goes on from other initial plans.
TEST(RefineStrategyTest, RestartsAsLongAsItHasStepsAlsoWhereMemoryIsScarce) {
  Random random(29);
  const ConcaveCostModel model;
  PlanRequest request;
  for (int t = 0; t < 24; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = std::to_string(t);
    table.num_embeddings = random.Between(1000, 100'000);
    table.embedding_dim = 16 * random.Between(1, 4);
    table.pooling_factor = static_cast<double>(random.Between(1, 30));
  }
  request.constraints.column_rule = ColumnRule::kTorchRec;
  request.search.strategy = "refine";
  request.topology.devices.assign(6, {0, std::int64_t{1} << 30});
  std::int64_t bytes = 0;
  for (const Table& table : request.tables) {
    const ShardLayout whole = LayoutIn({}, ShardingType::kTableWise, 1);
    bytes +=
        ShardMemory(request, table, whole, table.num_embeddings, table.embedding_dim).total_bytes();
  }
  for (const std::int64_t of_device : {std::int64_t{1} << 30, bytes / 6 + bytes / 200}) {
    request.topology.devices.assign(6, {0, of_device});
    std::vector<SearchResult> results;
    for (const std::int64_t steps : {30, 100, 350}) {
      request.search.refine_steps = steps;
      NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                              RunSearch(request, BoundTo(request, model), NeverStop(), nullptr));
      if (!results.empty()) {
        const SearchResult& fewer = results.back();
        EXPECT_LE(result.cost.embedding_cost_ms, fewer.cost.embedding_cost_ms);
        EXPECT_GT(result.statistics.plans_evaluated, 2 * fewer.statistics.plans_evaluated);
      }
      results.push_back(result);
    }
  }
}

// InitialSolutions look at every layout of every table; a cancel must not wait for all of them.
TEST(RefineStrategyTest, AsksOftenWhetherToStop) {
  WorkSincePoll work;
  PlanRequest request;
  for (int t = 0; t < 300; ++t) {
    request.tables.emplace_back().name = std::to_string(t);
    request.tables.back().num_embeddings = 1000 + 10 * t;
    request.tables.back().embedding_dim = 64;
    request.tables.back().pooling_factor = 1 + t % 7;
  }
  request.topology.devices.assign(16, {0, std::int64_t{1} << 30});
  request.search.strategy = "refine";
  request.search.refine_steps = 3;
  const PricingConditions conditions = ConditionsOf(request);
  std::vector<ShardingType> all_types;
  for (const auto& word : kWords<ShardingType>) all_types.push_back(word.value);
  const BoundCostModel model(conditions, {}, all_types,
                             std::make_shared<const MeteredCompute>(
                                 std::make_shared<const ConcaveCompute>(0, false), work),
                             std::make_shared<const ConcaveComm>(conditions));
  ASSERT_TRUE(RunSearch(request, model, MeteredStop(work), nullptr).ok());
  EXPECT_LT(work.most, 6000U);
}

// One large hot table on one of four ranks: a budget of half of it pays for half of its columns.
TEST(RefineStrategyTest, ABudgetIsSpentOnPartsOfTables) {
  PlanRequest request;
  request.topology.devices.assign(4, {.memory_bytes = std::int64_t{1} << 34});
  request.memory.rule = MemoryRule::kWeightsOnly;
  Plan previous{.world_size = 4, .local_world_size = 4, .tables = {}};
  for (int t = 0; t < 4; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(t);
    table.num_embeddings = 1'000'000;
    table.embedding_dim = 128;
    table.pooling_factor = t == 0 ? 80 : 5;
    TablePlan& in_place = previous.tables.emplace_back();
    in_place.name = table.name;
    in_place.shards = {{.rows = table.num_embeddings, .cols = 128, .rank = t}};
  }
  request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
  request.migration.emplace().previous = previous;
  request.migration->budget_bytes = 4 * 1'000'000 * 64;
  const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
  const double before_ms = PricePlan(request, previous, model)->embedding_cost_ms;
  for (const double price : {0.0, 1e-3}) {
    request.migration->price_ms_per_gib = price;
    const auto result = RunSearch(request, model, NeverStop(), nullptr);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(CheckPlan(request, result->plan).empty());
    EXPECT_LT(result->cost.embedding_cost_ms, 0.6 * before_ms) << price;
  }
  // Not worth it.
  request.migration->price_ms_per_gib = 1e6;
  EXPECT_EQ(RunSearch(request, model, NeverStop(), nullptr)->plan, previous);
}

}  // namespace
}  // namespace neuroshard
