// `refine` under constraints, migrations, all sharding types and stops at any moment.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/rules/compiled_rules.h"
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
using ::neuroshard::testing::AddRandomNeeds;
using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// NEUROSHARD_RANDOM_REQUESTS=100000 makes it the long run of tests/README.md;
// NEUROSHARD_FIRST_REQUEST begins with a later one, to repeat what such a run has found.
int FromEnvironment(const char* name, int usual) {
  const char* const asked = std::getenv(name);
  return asked == nullptr ? usual : std::atoi(asked);
}

class LegalityCheck final : public SearchObserver {
 public:
  explicit LegalityCheck(const PlanRequest& request) : request_(request) {}

  void OnImprovement(const SearchResult& result) override {
    ++improvements;
    for (const Violation& violation : CheckPlan(request_, result.plan)) {
      ADD_FAILURE() << violation.field << ": " << violation.description;
    }
  }
  void OnProgress(double) override {}

  int improvements = 0;

 private:
  const PlanRequest& request_;
};

PlanRequest DemandingRequest(Random& random, int max_tables, int max_ranks) {
  PlanRequest request = RandomPlanRequest(random, {.max_tables = max_tables,
                                                   .max_ranks = max_ranks,
                                                   .ranks_per_host = {1, 2, 3},
                                                   .torchrec_memory = true});
  if (random.Below(4) == 0) {
    for (Table& table : request.tables) {
      if (random.Below(2) == 0) table.kind = TableKind::kEmbedding;
    }
  }
  if (random.Below(3) == 0) {
    for (Device& device : request.topology.devices) {
      device.compute_speed = static_cast<double>(random.Between(1, 3));
    }
  }
  if (random.Below(8) != 0) AddRandomConstraints(random, request, 6);
  if (random.Below(3) == 0) AddRandomMigration(random, request);
  request.search.strategy = "refine";
  request.search.refine_steps = 25;
  request.search.max_length = 2;
  return request;
}

// Of which every block of columns has the keys.
void AddHashTables(PlanRequest& request) {
  for (std::size_t t = 0; t < request.tables.size(); t += 2) {
    request.tables[t].extra_bytes_per_row = 24;
    request.tables[t].allocated_rows = request.tables[t].num_embeddings * 5 / 4;
  }
}

TEST(RefineDemandsTest, NoPlanIsEverIllegal) {
  Random random(41);
  const int requests = FromEnvironment("NEUROSHARD_RANDOM_REQUESTS", testing::Trials(400));
  const int first = FromEnvironment("NEUROSHARD_FIRST_REQUEST", 0);
  int solved = 0;
  for (int i = 0; i < requests; ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 7));
    PlanRequest request = DemandingRequest(random, 10, 8);
    if (i < first) continue;
    if (i % 5 == 4) AddHashTables(request);
    LegalityCheck check(request);
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), &check);
    if (!result.ok()) {
      ASSERT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
      continue;
    }
    ++solved;
    ASSERT_GE(check.improvements, 1);
    NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost,
                            PricePlan(request, result->plan, BoundTo(request, model)));
    ASSERT_EQ(result->cost, cost) << i;
    ASSERT_FALSE(HasFailure()) << "request " << i;
  }
  EXPECT_GE(solved, testing::FewestCases((requests - first) / 6));
}

// What newer requests ask for, mixed with all of the above. Where weights leave devices for dense
// layers, they can.
TEST(RefineDemandsTest, NoPlanIsIllegalWhateverIsAskedForTogether) {
  Random random(43);
  const int requests = FromEnvironment("NEUROSHARD_RANDOM_REQUESTS", testing::Trials(300));
  const int first = FromEnvironment("NEUROSHARD_FIRST_REQUEST", 0);
  int solved = 0, stashed = 0, reached = 0;
  for (int i = 0; i < requests; ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 7));
    PlanRequest request = DemandingRequest(random, 8, 6);
    AddRandomNeeds(random, request);
    if (i < first) continue;
    LegalityCheck check(request);
    const BoundCostModel bound = BoundTo(request, model);
    const auto result = RunSearch(request, bound, NeverStop(), &check);
    ASSERT_FALSE(HasFailure()) << "request " << i;
    if (!result.ok()) {
      ASSERT_TRUE(absl::IsFailedPrecondition(result.status())) << i << ": " << result.status();
      continue;
    }
    ++solved;
    EXPECT_THAT(CheckPlan(request, result->plan), IsEmpty());
    NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost, PricePlan(request, result->plan, bound));
    EXPECT_EQ(result->cost, cost);
    stashed += request.stashes();
    const auto stash = ChooseStash(request, result->plan);
    EXPECT_TRUE(!request.stashes() || stash.ok()) << stash.status();
    EXPECT_EQ(result->trades.size() + 1, std::max<std::size_t>(1, request.search.goals.size()));
    reached += !result->trades.empty();
    ASSERT_FALSE(HasFailure()) << "request " << i;
  }
  EXPECT_GE(solved, testing::FewestCases((requests - first) / 8));
  EXPECT_GE(stashed, testing::FewestCases((requests - first) / 20));
  EXPECT_GE(reached, testing::FewestCases((requests - first) / 200));
}

TEST(RefineDemandsTest, TinyRequestsAreSolvedWheneverTheyCanBe) {
  Random random(43);
  int feasible = 0;
  int missed = 0;
  double best_ms = 0;
  double refine_ms = 0;
  for (int i = 0; i < 200; ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 7));
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 2,
                                                     .max_ranks = 3,
                                                     .dims = {4, 6, 8},
                                                     .ranks_per_host = {1, 2},
                                                     .torchrec_memory = true});
    AddRandomConstraints(random, request, 5);
    if (i % 3 == 2) AddHashTables(request);
    if (i % 2 == 0) {
      for (std::size_t r = 1; r < request.topology.devices.size(); ++r) {
        request.topology.devices[r].compute_speed = r == 1 ? 2 : 0.7;
      }
    }
    request.search.strategy = "refine";
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    const BestOfAllPlans best =
        BestOfAll(request, TypeSet(model.info().coverage.sharding_types), BoundTo(request, model));
    if (!(best.feasible || !result.ok())) {
      for (const auto& v : CheckPlan(request, result->plan))
        ADD_FAILURE() << i << " " << v.field << ": " << v.description;
      ADD_FAILURE() << i << "infeasible?";
      continue;
    }
    if (!best.feasible) continue;
    ++feasible;
    if (!result.ok()) {
      ++missed;
      ADD_FAILURE() << "request " << i << ": " << result.status();
      continue;
    }
    ASSERT_GE(result->cost.embedding_cost_ms, best.cost_ms * (1 - 1e-6));
    best_ms += best.cost_ms;
    refine_ms += result->cost.embedding_cost_ms;
  }
  EXPECT_GT(feasible, 15);
  EXPECT_LT(refine_ms, 1.02 * best_ms);
  RecordProperty("gap_percent", std::to_string(100 * (refine_ms / best_ms - 1)));
}

// FBGEMM's kernels on CUDA devices take 2,048 columns. Plans are checked against that by themselves.
TEST(RefineDemandsTest, WideTablesAreCutForTheTrainersKernelsOrRefusedByName) {
  Random random(61);
  int solved = 0, refused = 0;
  for (int i = 0; i < testing::Trials(300); ++i) {
    PlanRequest request = DemandingRequest(random, 4, 8);
    bool wide = false;
    for (Table& table : request.tables) {
      constexpr std::int64_t kDims[] = {8, 1280, 2048, 2050, 2052, 3840, 4100, 8192};
      table.embedding_dim = kDims[random.Below(8)];
      table.num_embeddings = std::min<std::int64_t>(table.num_embeddings, 100);
      wide = wide || table.embedding_dim > 2048;
    }
    request.migration.reset();
    request.memory = {};
    for (Device& device : request.topology.devices) device.memory_bytes = std::int64_t{1} << 40;
    if (i % 2 == 0) request.constraints = {};
    request.topology.compute_device = ComputeDevice::kCuda;
    const std::shared_ptr<const CostModel> model = MakeAnalyticCostModel();
    LegalityCheck check(request);
    const auto result = RunSearch(request, BoundTo(request, *model), NeverStop(), &check);
    ASSERT_FALSE(HasFailure()) << "request " << i;
    if (result.ok()) {
      solved += wide;
      for (const TablePlan& table : result->plan.tables) {
        for (const Shard& shard : table.shards) ASSERT_LE(shard.cols, 2048) << i;
      }
      continue;
    }
    // TorchRec's one block width may be all columns.
    ASSERT_TRUE(!request.constraints.empty() || request.has_unpooled_tables()) << result.status();
    ASSERT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
    // Where it could be planned without the limit, the limit is among what is named.
    request.topology.compute_device = ComputeDevice::kCpu;
    if (!RunSearch(request, BoundTo(request, *model), NeverStop(), nullptr).ok()) continue;
    ++refused;
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("topology.compute_device (FBGEMM on CUDA devices takes at most 2048"));
  }
  EXPECT_GE(solved, testing::FewestCases(101));
  EXPECT_GE(refused, testing::FewestCases(4));
}

TEST(RefineDemandsTest, AWideTableIsSpreadAsWellAsOneThatMayBeCutAnywhere) {
  PlanRequest request;
  request.topology.devices.assign(8, Device{.host = 0, .memory_bytes = std::int64_t{1} << 40});
  Table& table = request.tables.emplace_back();
  table.name = "wide";
  table.num_embeddings = 1000;
  table.embedding_dim = 8192;
  request.constraints.sharding_types = {ShardingType::kColumnWise};
  const std::shared_ptr<const CostModel> model = MakeAnalyticCostModel();
  const auto cost = [&](ComputeDevice device) {
    request.topology.compute_device = device;
    return RunSearch(request, BoundTo(request, *model), NeverStop(), nullptr)
        ->cost.embedding_cost_ms;
  };
  EXPECT_LE(cost(ComputeDevice::kCuda), 1.001 * cost(ComputeDevice::kCpu));
}

// A legal plan in place, found without the request's constraints, each table in a type at random
// where it can have that; of its tables only some types may move.
bool PutPlanInPlace(Random& random, PlanRequest& request, const CostModel& model) {
  PlanRequest before = request;
  before.constraints = {};
  before.search.strategy = "refine";
  before.search.refine_steps = 0;
  for (std::size_t t = 0; t < before.tables.size(); ++t) {
    TableRule& rule = before.constraints.tables.emplace_back();
    rule.tables = {static_cast<int>(t)};
    if (random.Below(2) == 0) {  // of which a rank or a host has many layouts
      constexpr ShardingType kFree[] = {ShardingType::kTableColumnWise, ShardingType::kGridShard,
                                        ShardingType::kRowWiseSubset};
      rule.sharding_types = {kFree[random.Below(3)]};
      rule.max_shards = static_cast<int>(2 + random.Below(4));
      continue;
    }
    for (const auto& word : kWords<ShardingType>) {
      if (random.Below(3) == 0) rule.sharding_types.push_back(word.value);
    }
  }
  auto result = RunSearch(before, BoundTo(before, model), NeverStop(), nullptr);
  if (!result.ok()) return false;
  if (request.constraints.sharding_types.empty()) {  // the model's alone are cuts of columns
    for (const auto& word : kWords<ShardingType>) {
      request.constraints.sharding_types.push_back(word.value);
    }
  }
  Migration& migration = request.migration.emplace();
  migration.previous = std::move(result->plan);
  if (random.Below(4) == 0) migration.previous.tables.back().name = "gone";
  if (random.Below(4) == 0) migration.budget_bytes = random.Below(100'000);
  migration.only_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
  return true;
}

// Against all plans.
TEST(RefineDemandsTest, OnlyListedTypesChangePlace) {
  Random random(51);
  int feasible = 0;
  int kept = 0;
  double best_ms = 0;
  double refine_ms = 0;
  for (int i = 0; i < 200; ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 7));
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 3,
                                                     .max_ranks = 3,
                                                     .dims = {4, 8},
                                                     .ranks_per_host = {1, 2},
                                                     .torchrec_memory = i % 2 == 0});
    if (i % 3 == 0) AddRandomConstraints(random, request, 3);
    if (!PutPlanInPlace(random, request, model)) continue;
    request.search.strategy = "refine";
    LegalityCheck check(request);
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), &check);
    const BestOfAllPlans best =
        BestOfAll(request, TypeSet(model.info().coverage.sharding_types), BoundTo(request, model));
    ASSERT_EQ(result.ok(), best.feasible) << "request " << i << ": " << result.status();
    ASSERT_FALSE(HasFailure()) << "request " << i;
    if (!best.feasible) {
      ASSERT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
      ASSERT_THAT(Message(result.status()), Not(HasSubstr("not proven"))) << "request " << i;
      continue;
    }
    ++feasible;
    const CompiledRules rules(request, TypeSet::All());
    kept += std::any_of(rules.tables().begin(), rules.tables().end(),
                        [](const TableRules& of) { return of.kept != nullptr; });
    ASSERT_GE(result->cost.embedding_cost_ms, best.cost_ms * (1 - 1e-6));
    best_ms += best.cost_ms;
    refine_ms += result->cost.embedding_cost_ms;
  }
  EXPECT_GT(feasible, 40);
  EXPECT_GT(kept, 20);
  EXPECT_LT(refine_ms, 1.02 * best_ms);
}

TEST(RefineDemandsTest, LargerPlansInPlaceKeepWhatMayNotMove) {
  Random random(53);
  int solved = 0;
  for (int i = 0; i < testing::Trials(150); ++i) {
    const ConcaveCostModel model(static_cast<std::uint64_t>(i % 7));
    PlanRequest request = DemandingRequest(random, 10, 8);
    if (i % 2 == 0) request.constraints = {};
    request.migration.reset();
    if (!PutPlanInPlace(random, request, model)) continue;
    LegalityCheck check(request);
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), &check);
    ASSERT_FALSE(HasFailure()) << "request " << i;
    if (result.ok()) {
      ++solved;
    } else {
      ASSERT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
    }
  }
  EXPECT_GE(solved, testing::FewestCases(31));
}

class StopAfter final : public StopSignal {
 public:
  explicit StopAfter(int polls) : left_(polls) {}
  bool ShouldStop() const override { return left_-- <= 0; }

 private:
  mutable int left_;
};

TEST(RefineDemandsTest, AStopAtAnyPollLeavesALegalPlanOrNone) {
  Random random(47);
  const ConcaveCostModel model;
  int cut = 0;
  for (int i = 0; i < 60; ++i) {
    const PlanRequest request = DemandingRequest(random, 8, 6);
    for (const int polls : {0, 1, 2, 3, 5, 8, 13, 34, 89, 233}) {
      LegalityCheck check(request);
      const auto result = RunSearch(request, BoundTo(request, model), StopAfter(polls), &check);
      if (result.ok()) {
        cut += result->statistics.time_limit_reached;
      } else {
        ASSERT_TRUE(absl::IsFailedPrecondition(result.status()) ||
                    absl::IsDeadlineExceeded(result.status()))
            << result.status();
      }
    }
  }
  EXPECT_GT(cut, 20);
}

// After the first contradiction another is looked for, which a deadline may cut.
TEST(RefineDemandsTest, AProofIsToldThoughTheStopCutsTheNextOne) {
  Random random(47);
  const ConcaveCostModel model;
  PlanRequest request = RandomPlanRequest(random, {.max_tables = 3});
  for (Device& device : request.topology.devices) device.memory_bytes = 1;
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {0};
  rule.ranks = rule.forbidden_ranks = {0};
  int first_alone = 0;
  for (int polls = 0;; ++polls) {
    ASSERT_LT(polls, 100'000) << "never both";
    LegalityCheck check(request);
    const auto result = RunSearch(request, BoundTo(request, model), StopAfter(polls), &check);
    if (absl::IsDeadlineExceeded(result.status())) continue;
    EXPECT_THAT(result,
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no plan can exist")));
    if (result.status().message().find("(2) No plan keeps") != std::string_view::npos) break;
    ++first_alone;
  }
  EXPECT_GT(first_alone, 0);
}

// NeuroShard's search, which cuts columns alone, runs inside of it.
TEST(RefineDemandsTest, WithoutDemandsAPlanIsFoundWhereverATypeAllowsOne) {
  Random random(77);
  const auto model = MakeAnalyticCostModel();
  int rows_alone = 0;
  for (int i = 0; i < testing::Trials(120); ++i) {
    PlanRequest request = RandomPlanRequest(
        random,
        {.max_tables = 2, .max_ranks = 4, .dims = {3, 4, 8}, .min_slack = 0.9, .max_slack = 1.6});
    const BoundCostModel bound = BoundTo(request, *model);
    const bool any = AnyPlanIsLegal(request, TypeSet(bound.sharding_types()));
    LegalityCheck observer(request);
    const auto refine = RunSearch(request, bound, NeverStop(), &observer);
    ASSERT_EQ(refine.ok(), any) << "instance " << i << ": " << refine.status();
    request.search.strategy = "neuroshard";
    const auto columns = RunSearch(request, bound, NeverStop(), nullptr);
    if (!any || columns.ok()) continue;
    ++rows_alone;
    EXPECT_THAT(std::string(columns.status().message()),
                ::testing::StartsWith("no plan can exist that cuts columns alone"));
  }
  EXPECT_GE(rows_alone, testing::FewestCases(4));
}

}  // namespace
}  // namespace neuroshard
