#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "server/search/baselines/baselines.h"
#include "server/search/run_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlanRequest FourTables() {
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  const auto add = [&](std::int64_t rows, std::int64_t dim, double pooling) {
    Table table;
    table.name = "t" + std::to_string(request.tables.size());
    table.num_embeddings = rows;
    table.embedding_dim = dim;
    table.pooling_factor = pooling;
    request.tables.push_back(table);
  };
  add(1000, 8, 1);    //  32,000 B, dim  8, lookups   8, size-lookups  24
  add(100, 16, 10);   //   6,400 B, dim 16, lookups 160, size-lookups 320
  add(10000, 4, 30);  // 160,000 B, dim  4, lookups 120, size-lookups 480
  add(10, 12, 9);     //     480 B, dim 12, lookups 108, size-lookups 108
  request.topology.devices = {{0, 1 << 20}, {0, 1 << 20}};
  return request;
}

std::vector<int> Ranks(const PlanRequest& request, const std::string& strategy) {
  PlanRequest named = request;
  named.search.strategy = strategy;
  const ConcaveCostModel model;
  const auto result = RunSearch(named, BoundTo(named, model), NeverStop(), nullptr);
  std::vector<int> ranks;
  if (!result.ok()) return ranks;
  for (const TablePlan& table : result->plan.tables) {
    for (const Shard& shard : table.shards) ranks.push_back(shard.rank);
  }
  return ranks;
}

TEST(GreedyBaselineTest, PlacesByHand) {
  const PlanRequest request = FourTables();
  // t2 -> 0; t0 -> 1 (32000), t1 -> 1 (38400), t3 -> 1.
  EXPECT_THAT(Ranks(request, "size_greedy"), ElementsAre(1, 1, 0, 1));
  // t1 (16) -> 0; t3 (12) -> 1; t0 (8) -> 1 (20); t2 (4) -> 0.
  EXPECT_THAT(Ranks(request, "dim_greedy"), ElementsAre(1, 0, 0, 1));
  // t1 (160) -> 0; t2 (120) -> 1; t3 (108) -> 1 (228); t0 (8) -> 0.
  EXPECT_THAT(Ranks(request, "lookup_greedy"), ElementsAre(0, 0, 1, 1));
  // t2 (480) -> 0; t1 (320) -> 1; t3 (108) -> 1 (428); t0 (24) -> 1 (452).
  EXPECT_THAT(Ranks(request, "size_lookup_greedy"), ElementsAre(1, 1, 0, 1));
}

TEST(GreedyBaselineTest, EqualSumsGoToTheRankWithLessMemoryThenToTheLowerIndex) {
  PlanRequest request = FourTables();
  // dims 8 (32,000 B), 8 (3,200 B), 8: the third finds sums of 8 and less memory on rank 1.
  request.tables[1].embedding_dim = 8;
  request.tables[2].embedding_dim = 8;
  request.tables.resize(3);
  EXPECT_THAT(Ranks(request, "dim_greedy"), ElementsAre(0, 1, 1));
}

TEST(GreedyBaselineTest, NothingIsPlacedWhereItDoesNotFit) {
  PlanRequest request = FourTables();
  // Rank 0 would be the first choice for t1 and t2, but only holds t1 and t3.
  request.topology.devices = {{0, 7000}, {0, 1 << 20}};
  EXPECT_THAT(Ranks(request, "dim_greedy"), ElementsAre(1, 0, 1, 1));
}

TEST(GreedyBaselineTest, FallsBackToAPackingWhenGreedyRunsOut) {
  PlanRequest request = FourTables();
  // By dim: t1 -> 0, t3 -> 1, then t0 -> 1, and t2 (160,000 B) fits nowhere although 0 is large
  // enough alone.
  request.topology.devices = {{0, 160'000}, {0, 38'880}};
  EXPECT_THAT(Ranks(request, "dim_greedy"), ElementsAre(1, 1, 0, 1));
}

TEST(GreedyBaselineTest, ATableLargerThanEveryRankIsHalvedUntilItFits) {
  PlanRequest request = FourTables();
  request.tables[2].embedding_dim = 8;  // 320,000 B
  const ConcaveCostModel model;
  for (const char* strategy :
       {"random", "size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy"}) {
    request.search.strategy = strategy;
    request.topology.devices = {{0, 200'000}, {0, 200'000}};
    const auto result = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    ASSERT_TRUE(result.ok()) << strategy << ": " << result.status();
    EXPECT_EQ(result->statistics.splits, 1) << strategy;
    EXPECT_EQ(result->plan.tables[2].shards[0].cols, 4) << strategy;
    // Halves of 4 columns cannot be halved.
    request.topology.devices = {{0, 100'000}, {0, 100'000}};
    EXPECT_THAT(RunSearch(request, BoundTo(request, model), NeverStop(), nullptr),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("table 't2'")))
        << strategy;
  }
}

TEST(GreedyBaselineTest, UnpooledTablesStayWhole) {
  PlanRequest request = FourTables();
  request.tables[2].embedding_dim = 8;
  request.tables[2].kind = TableKind::kEmbedding;
  request.topology.devices = {{0, 200'000}, {0, 200'000}};
  request.search.strategy = "size_greedy";
  const ConcaveCostModel model;
  EXPECT_THAT(RunSearch(request, BoundTo(request, model), NeverStop(), nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("that keeps tables whole"), HasSubstr("table 't2'"))));
}

}  // namespace
}  // namespace neuroshard
