#include "server/search/packing/find_packing.h"

#include <gmock/gmock.h>

#include "server/evaluate/check_plan.h"
#include "server/search/packing/packers.h"
#include "server/search/testing/exhaustive_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Tables of 4 B elements whose bytes are 4 x rows x dim, ranks of the given bytes.
PlanRequest WeightsOnly(const std::vector<std::pair<std::int64_t, std::int64_t>>& rows_and_dims,
                        const std::vector<std::int64_t>& capacities) {
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  for (const auto& [rows, dim] : rows_and_dims) {
    Table table;
    table.name = "t" + std::to_string(request.tables.size());
    table.num_embeddings = rows;
    table.embedding_dim = dim;
    request.tables.push_back(table);
  }
  for (const std::int64_t bytes : capacities) request.topology.devices.push_back({0, bytes});
  return request;
}

TEST(FindPackingTest, WholeTablesAreFoundExactlyWhenTheyFit) {
  Random random(1);
  const ConcaveCostModel model;
  int feasible = 0;
  for (int i = 0; i < 400; ++i) {
    const PlanRequest request = RandomPlanRequest(
        random, {.max_tables = 5, .max_ranks = 3, .min_slack = 0.9, .max_slack = 1.5});
    const StatusOr<Placement> packing = FindPacking(request, Cutting::kWholeTables);
    const bool possible = ExhaustiveSearch(request, BoundTo(request, model), 0).feasible;
    ASSERT_EQ(packing.ok(), possible) << "instance " << i << ": " << packing.status().ToString();
    feasible += possible;
    if (possible) {
      EXPECT_THAT(CheckPlan(request, BuildPlan(request, *packing)), IsEmpty());
    } else {
      EXPECT_THAT(packing,
                  StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no plan can exist")));
    }
  }
  EXPECT_GT(feasible, 50);
  EXPECT_LT(feasible, 350);
}

TEST(FindPackingTest, CutTablesAreFoundExactlyWhenTheyFit) {
  Random random(2);
  int feasible = 0;
  int cut = 0;
  for (int i = 0; i < 400; ++i) {
    const PlanRequest request = RandomPlanRequest(random, {.max_tables = 4,
                                                           .max_ranks = 3,
                                                           .dims = {1, 3, 4, 6, 8, 11, 12},
                                                           .min_slack = 0.95,
                                                           .max_slack = 1.3});
    const StatusOr<Placement> packing = FindPacking(request, Cutting::kColumns);
    const bool possible = AnyColumnPackingFits(request);
    ASSERT_EQ(packing.ok(), possible) << "instance " << i << ": " << packing.status().ToString();
    feasible += possible;
    if (possible) {
      cut += packing->pieces.size() > request.tables.size();
      EXPECT_THAT(CheckPlan(request, BuildPlan(request, *packing)), IsEmpty()) << "instance " << i;
    } else {
      EXPECT_THAT(packing,
                  StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no plan can exist")));
    }
  }
  EXPECT_GT(feasible, 50);
  EXPECT_LT(feasible, 350);
  EXPECT_GT(cut, 20);
}

TEST(FindPackingTest, TheExhaustiveSearchAgreesWithTheOracle) {
  Random random(3);
  for (int i = 0; i < 300; ++i) {
    const PlanRequest request = RandomPlanRequest(random, {.max_tables = 3,
                                                           .max_ranks = 3,
                                                           .dims = {3, 4, 7, 8, 11, 12},
                                                           .min_slack = 0.95,
                                                           .max_slack = 1.3});
    const ExactPacking exact = PackColumnsExactly(request);
    ASSERT_EQ(exact.placement.has_value(), AnyColumnPackingFits(request)) << "instance " << i;
    ASSERT_TRUE(exact.placement.has_value() || exact.exhausted);
    if (exact.placement) {
      EXPECT_THAT(CheckPlan(request, BuildPlan(request, *exact.placement)), IsEmpty());
    }
  }
}

// In bytes: 40, 40, 40, 30, 30, 30 on 70 + 60 + 80. Best fit puts 40 + 40 on the third and 40 on
// the second; of the 30s one fits the first, one the first again, and the last finds 20 on the
// second.
TEST(FindPackingTest, MakesRoomByMovingTables) {
  const PlanRequest request =
      WeightsOnly({{10, 1}, {10, 1}, {10, 1}, {7, 1}, {7, 1}, {7, 1}}, {68, 56, 80});
  NS_ASSERT_OK_AND_ASSIGN(const Placement packing, FindPacking(request, Cutting::kWholeTables));
  EXPECT_THAT(CheckPlan(request, BuildPlan(request, packing)), IsEmpty());
}

TEST(FindPackingTest, ManyTablesThatFillEverythingAreCutToFit) {
  // 64 tables of 1000 rows x 128 on 7 ranks, all full but for the waste of one granule a rank.
  const std::vector<std::pair<std::int64_t, std::int64_t>> tables(64, {1000, 128});
  const std::int64_t total = 64 * 1000 * 128 * 4;
  const PlanRequest request =
      WeightsOnly(tables, std::vector<std::int64_t>(7, total / 7 + 1000 * 16));
  NS_ASSERT_OK_AND_ASSIGN(const Placement packing, FindPacking(request, Cutting::kColumns));
  EXPECT_THAT(CheckPlan(request, BuildPlan(request, packing)), IsEmpty());
}

TEST(FindPackingTest, NamesTheTableThatNoRankCanHold) {
  const PlanRequest request = WeightsOnly({{10, 4}, {1000, 2}, {1000, 4}}, {9000, 15000});
  EXPECT_THAT(FindPacking(request, Cutting::kColumns),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("no plan can exist"), HasSubstr("table 't2'"),
                             HasSubstr("1000 bytes short"), Not(HasSubstr("'t1'")))));
}

TEST(FindPackingTest, NamesTheTableWithMoreColumnsThanAllRanksTake) {
  // Each rank has room for one granule of 4 columns (16000 B), and the table has three.
  const PlanRequest request = WeightsOnly({{1000, 12}}, {30000, 30000});
  EXPECT_THAT(FindPacking(request, Cutting::kColumns),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("table 't0' has 12 columns"), HasSubstr("at most 8 of them"),
                             HasSubstr("16000 bytes short"))));
}

TEST(FindPackingTest, SaysHowManyBytesLackInAll) {
  const PlanRequest request = WeightsOnly({{100, 4}, {100, 4}, {100, 4}}, {2000, 2000});
  EXPECT_THAT(FindPacking(request, Cutting::kColumns),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("4800 bytes"), HasSubstr("4000 bytes"),
                             HasSubstr("800 bytes short"))));
}

TEST(FindPackingTest, AReserveLargerThanARankLeavesItEmpty) {
  PlanRequest request = WeightsOnly({{10, 4}}, {100, 1000});
  request.memory.reserve_bytes = 500;
  NS_ASSERT_OK_AND_ASSIGN(const Placement packing, FindPacking(request, Cutting::kWholeTables));
  EXPECT_EQ(packing.rank_of_piece, std::vector<int>{1});
}

// 10,000 ranks of 2^50 bytes have more than int64 counts. That is far too many
// for the exhaustive search, which must not add them up first.
TEST(FindPackingTest, ManyLargeRanksDoNotOverflow) {
  const std::int64_t rows = (std::int64_t{1} << 48) - 1;
  const PlanRequest request =
      WeightsOnly({{rows, 1}, {rows, 1}}, std::vector<std::int64_t>(10'000, std::int64_t{1} << 50));
  EXPECT_THAT(FindPacking(request, Cutting::kWholeTables), IsOk());
  EXPECT_FALSE(PackColumnsExactly(request).placement.has_value());
}

TEST(FindPackingTest, TablesOfSaturatedSizeAreOutOfReach) {
  std::vector<std::pair<std::int64_t, std::int64_t>> tables(5000, {std::int64_t{1} << 48, 65536});
  const PlanRequest request = WeightsOnly(tables, {std::int64_t{1} << 40});
  EXPECT_THAT(FindPacking(request, Cutting::kColumns),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("and 4995 more tables")));
}

TEST(FindPackingTest, SaysThatNothingIsProvenWhenTheEffortRanOut) {
  // Odd bytes in all tables, even capacities whose sum is what the tables need: no assignment
  // exists, but that takes more than the bounded effort to see.
  std::vector<std::pair<std::int64_t, std::int64_t>> tables;
  std::int64_t total = 0;
  Random random(4);
  for (int t = 0; t < 40; ++t) {
    tables.push_back({random.Between(100'000, 200'000) * 3, 1});
    total += tables.back().first * 4;
  }
  const PlanRequest request = WeightsOnly(tables, {total / 2 - 2, total / 2 + 2});
  EXPECT_THAT(FindPacking(request, Cutting::kWholeTables),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("no plan was found"), HasSubstr("not proven"))));
}

}  // namespace
}  // namespace neuroshard
