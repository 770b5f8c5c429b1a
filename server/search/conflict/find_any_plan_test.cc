#include "server/search/conflict/find_any_plan.h"

#include <gmock/gmock.h>

#include "server/evaluate/check_plan.h"
#include "server/search/testing/all_plans.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_migration.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::AddRandomConstraints;
using ::neuroshard::testing::AddRandomMigration;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::RandomRequestShape;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StatusOr<Plan> FindAnyPlan(const PlanRequest& request, TypeSet types,
                           const StopSignal& stop = NeverStop()) {
  return neuroshard::FindAnyPlan(request, CompiledRules(request, types), types, stop);
}

// Two dynamic tables, one rank or two: all shares in all modes are few enough to try.
TEST(FindAnyPlanTest, FindsSharesOfDynamicTablesWhereThereAreAny) {
  Random random(43);
  int legal = 0;
  for (int i = 0; i < testing::Trials(150); ++i) {
    PlanRequest request;
    request.memory.rule = i % 2 == 0 ? MemoryRule::kTorchRec : MemoryRule::kWeightsOnly;
    request.global_batch_size = 16;
    const int ranks = 1 + static_cast<int>(random.Below(2));
    TableRule rule;
    rule.sharding_types = {ShardingType::kRowWise};
    rule.compute_kernels = {ComputeKernel::kDynamicHybrid};
    if (random.Below(3) == 0) rule.compute_kernels = {ComputeKernel::kDynamicCaching};
    if (random.Below(3) == 0) rule.compute_kernels.push_back(ComputeKernel::kDynamicCaching);
    std::int64_t values = 0;
    for (int t = 0; t < 2; ++t) {
      Table& table = request.tables.emplace_back();
      table.name = std::string(1, static_cast<char>('a' + t));
      table.num_embeddings = 32 * (1 + static_cast<std::int64_t>(random.Below(40)));
      table.embedding_dim = 4 * (1 + static_cast<std::int64_t>(random.Below(16)));
      table.pooling_factor = 0;
      values += table.num_embeddings * (table.embedding_dim * 4 + 17);
      rule.tables.push_back(t);
    }
    request.constraints.tables = {rule};
    const auto share = [&] { return static_cast<double>(values) * random.UniformReal(); };
    for (int r = 0; r < ranks; ++r) {
      request.topology.devices.push_back({0, static_cast<std::int64_t>(1.5 * share()) / ranks + 1});
    }
    for (Device& device : request.topology.devices) device = request.topology.devices.front();
    request.topology.host_memory_bytes = {static_cast<std::int64_t>(1.5 * share()) + 1};
    const CompiledRules rules(request, TypeSet::All());
    bool any = false;
    for (const int a : *rules.of(0).residencies) {
      for (const int b : *rules.of(1).residencies) {
        Plan plan;
        plan.world_size = plan.local_world_size = ranks;
        for (const int t : {0, 1}) {
          const Table& table = request.tables[static_cast<std::size_t>(t)];
          const Residency& in = rules.residency(t == 0 ? a : b);
          TablePlan& of = plan.tables.emplace_back();
          of.name = table.name;
          of.sharding_type = ShardingType::kRowWise;
          of.compute_kernel = in.kernel;
          of.cache_load_factor = in.cache_load_factor;
          const std::int64_t rows = table.num_embeddings / ranks;
          for (int r = 0; r < ranks; ++r) {
            of.shards.push_back({r * rows, rows, 0, table.embedding_dim, r});
          }
        }
        any = any || CheckPlan(request, plan).empty();
      }
    }
    const auto plan = FindAnyPlan(request, TypeSet::All());
    EXPECT_EQ(plan.ok(), any) << plan.status().message();
    EXPECT_TRUE(!plan.ok() || CheckPlan(request, *plan).empty());
    legal += any ? 1 : 0;
  }
  EXPECT_GE(legal, testing::FewestCases(31));
  EXPECT_LT(legal, testing::Trials(120));
}

TEST(FindAnyPlanTest, FindsALegalPlanWhereThereIsOne) {
  Random random(41);
  RandomRequestShape shape;
  shape.max_tables = 3;
  shape.max_ranks = 4;
  shape.dims = {3, 4, 6, 8};
  shape.ranks_per_host = {1, 2};
  shape.torchrec_memory = true;
  int found = 0;
  int missed = 0;
  int of_few = 0;
  for (int i = 0; i < testing::Trials(200); ++i) {
    PlanRequest request = RandomPlanRequest(random, shape);
    AddRandomConstraints(random, request, 10);
    if (i % 3 == 0) AddRandomMigration(random, request);
    const auto plan = FindAnyPlan(request, TypeSet::All());
    if (const auto first = FindPlanOfFew(request, CompiledRules(request, TypeSet::All()))) {
      EXPECT_EQ(plan.value(), *first);
      ++of_few;
    }
    if (plan.ok()) {
      EXPECT_THAT(CheckPlan(request, *plan), IsEmpty());
      ++found;
      continue;
    }
    EXPECT_THAT(plan, StatusIs(absl::StatusCode::kFailedPrecondition));
    missed += AnyPlanIsLegal(request, TypeSet::All()) ? 1 : 0;
  }
  EXPECT_GE(found, testing::FewestCases(61));
  EXPECT_EQ(missed, 0);
  EXPECT_GT(of_few, found / 2);
}

TEST(FindAnyPlanTest, SaysWhatIsProvenAndWhatIsNot) {
  Random random(42);
  RandomRequestShape shape;
  shape.max_tables = 1;
  PlanRequest request = RandomPlanRequest(random, shape);
  request.constraints.max_shards_per_table = 1;
  EXPECT_THAT(FindAnyPlan(request, {ShardingType::kRowWiseSubset}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("max_shards_per_table")));
  // Too many to be tried, and not proven by anything else: 20 uncut tables that want a rank each
  // and 39 that go in pairs, on 39 ranks.
  request.constraints = {};
  request.memory = {MemoryRule::kWeightsOnly, 0, 0};
  request.tables.assign(59, request.tables[0]);
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    request.tables[t].name = std::to_string(t);
    request.tables[t].num_embeddings = t < 20 ? 60 : 45;
    request.tables[t].embedding_dim = 100;
    request.tables[t].weight_dtype = DataType::kFp32;
  }
  request.topology.devices.assign(39, {0, 40'000});
  EXPECT_THAT(FindAnyPlan(request, {ShardingType::kTableWise}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not proven")));
}

// Tables that fill their ranks to the byte, were there not a row less on one and more on another:
// only trying tells that there is no plan, and all that it was to keep is named.
TEST(FindAnyPlanTest, WhatTryingProvesNamesAllDemands) {
  Random random(44);
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.topology.devices.resize(5);
  for (int t = 0; t < 20; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = std::to_string(t);
    table.num_embeddings = random.Between(1000, 1'000'000);
    table.embedding_dim = 16;
    request.topology.devices[static_cast<std::size_t>(t % 5)].memory_bytes +=
        64 * table.num_embeddings;
  }
  request.constraints.max_tables_per_rank = 5;
  const TypeSet whole = {ShardingType::kTableWise};
  ASSERT_TRUE(FindAnyPlan(request, whole).ok());
  request.topology.devices[0].memory_bytes -= 64;
  request.topology.devices[1].memory_bytes += 64;
  EXPECT_THAT(FindAnyPlan(request, whole),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("in all ways"),
                             HasSubstr("constraints.max_tables_per_rank (at most 5"),
                             HasSubstr("topology ("))));
}

TEST(FindAnyPlanTest, ProvesNothingOnceItIsToStop) {
  Random random(43);
  PlanRequest request = RandomPlanRequest(random, {.max_tables = 3});
  request.constraints.max_shards_per_table = 1;
  const TypeSet types = {ShardingType::kRowWiseSubset};
  ASSERT_FALSE(FindConflicts(request, types).empty());
  ManualStop stop;
  stop.Stop();
  EXPECT_TRUE(FindConflicts(request, types, stop).empty());
  EXPECT_THAT(FindAnyPlan(request, types, stop),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not proven")));
}

}  // namespace
}  // namespace neuroshard
