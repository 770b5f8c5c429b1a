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
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StatusOr<Plan> FindAnyPlan(const PlanRequest& request, TypeSet types,
                           const StopSignal& stop = NeverStop()) {
  return neuroshard::FindAnyPlan(request, CompiledRules(request, types), types, stop);
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
  EXPECT_GT(found, testing::Trials(60));
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

TEST(FindAnyPlanTest, ProvesNothingOnceItIsToStop) {
  Random random(43);
  PlanRequest request = RandomPlanRequest(random, {.max_tables = 3});
  request.constraints.max_shards_per_table = 1;
  const TypeSet types = {ShardingType::kRowWiseSubset};
  ASSERT_TRUE(FindConflict(request, types).has_value());
  ManualStop stop;
  stop.Stop();
  EXPECT_FALSE(FindConflict(request, types, stop).has_value());
  EXPECT_THAT(FindAnyPlan(request, types, stop),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not proven")));
}

}  // namespace
}  // namespace neuroshard
