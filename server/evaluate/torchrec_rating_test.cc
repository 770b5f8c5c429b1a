// A plan under the analytic model costs what TorchRec's planner rates it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/price_plan.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

// Of the two-host golden vectors of TorchRec's planner (shard_perf_test.cc): 1,000,000 x 128 in
// fp32, 16 ranks on two hosts, 4096 samples a rank, 20 ids a sample.
constexpr double kTableWiseMs = 0.7424923355629878 + 1.4849846711259755 + 2.5 + 2.5;
constexpr double kHalfColumnsMs = 0.4331931089743589 + 0.8663862179487178 + 1.25 + 1.25;
constexpr double kRowWiseMs = 0.07906672414994426 + 0.1581334482998885 + 2.5 + 2.585528149386845;
constexpr double kTableRowWiseMs =
    0.12329509824414715 + 0.2465901964882943 + 0.3645833333333333 + 0.45011148272017837;
constexpr double kGridMs =
    0.062327985646599776 + 0.12465597129319955 + 0.18229166666666666 + 0.22505574136008918;
constexpr double kDataParallelMs = 0.09281154194537347 + 0.18562308389074694 + 16.95509605450242;

constexpr std::int64_t kRows = 1'000'000;

PlanRequest GoldenRequest(int tables) {
  PlanRequest request;
  request.global_batch_size = 4096 * 16;
  request.memory.rule = MemoryRule::kWeightsOnly;
  for (int t = 0; t < tables; ++t) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(t);
    table.num_embeddings = kRows;
    table.embedding_dim = 128;
    table.pooling_factor = 20;
  }
  for (int rank = 0; rank < 16; ++rank) {
    request.topology.devices.push_back({.host = rank / 8, .memory_bytes = std::int64_t{1} << 40});
  }
  return request;
}

// Rows over the ranks [first, first + parts), of columns [col, col + cols).
void AddRowBlocks(TablePlan& plan, int first, int parts, std::int64_t col, std::int64_t cols) {
  const std::vector<Block> blocks = CeilBlocks(kRows, parts);
  for (int i = 0; i < parts; ++i) {
    const Block& block = blocks[static_cast<std::size_t>(i)];
    plan.shards.push_back({block.offset, block.size, col, cols, first + i});
  }
}

TEST(TorchRecRatingTest, APlanCostsWhatTorchRecRatesIt) {
  const PlanRequest request = GoldenRequest(6);
  Plan plan{.world_size = 16, .local_world_size = 8, .tables = {}};
  constexpr ShardingType kTypes[] = {ShardingType::kTableWise, ShardingType::kColumnWise,
                                     ShardingType::kRowWise,   ShardingType::kTableRowWise,
                                     ShardingType::kGridShard, ShardingType::kDataParallel};
  for (std::size_t t = 0; t < 6; ++t) {
    TablePlan& table = plan.tables.emplace_back();
    table.name = request.tables[t].name;
    table.sharding_type = kTypes[t];
  }
  plan.tables[0].shards = {{0, kRows, 0, 128, 3}};
  plan.tables[1].shards = {{0, kRows, 0, 64, 3}, {0, kRows, 64, 64, 3}};
  AddRowBlocks(plan.tables[2], 0, 16, 0, 128);
  AddRowBlocks(plan.tables[3], 8, 8, 0, 128);
  AddRowBlocks(plan.tables[4], 0, 8, 0, 64);
  AddRowBlocks(plan.tables[4], 8, 8, 64, 64);
  plan.tables[5].compute_kernel = ComputeKernel::kDense;
  for (int rank = 0; rank < 16; ++rank) {
    plan.tables[5].shards.push_back({0, kRows, 0, 128, rank});
  }

  NS_ASSERT_OK_AND_ASSIGN(
      const PlanCost cost,
      PricePlan(request, plan, testing::BoundTo(request, *MakeAnalyticCostModel())));

  const double everywhere = kRowWiseMs + kGridMs + kDataParallelMs;
  EXPECT_NEAR(cost.ranks[0].total_ms(), everywhere, 1e-5);
  EXPECT_NEAR(cost.ranks[3].total_ms(), everywhere + kTableWiseMs + 2 * kHalfColumnsMs, 1e-5);
  EXPECT_NEAR(cost.ranks[15].total_ms(), everywhere + kTableRowWiseMs, 1e-5);
  EXPECT_EQ(cost.embedding_cost_ms, cost.ranks[3].total_ms());
  EXPECT_NEAR(*cost.ranks[0].backward_compute_ms, 2 * *cost.ranks[0].forward_compute_ms, 1e-5);
}

}  // namespace
}  // namespace neuroshard
