#include "server/search/distributed_embeddings/distributed_embeddings_strategy.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/check_plan.h"
#include "server/search/run_search.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

PlanRequest Request(std::vector<std::pair<std::int64_t, std::int64_t>> tables, int ranks) {
  PlanRequest request;
  request.memory.rule = MemoryRule::kWeightsOnly;
  request.search.strategy = "basic";
  for (const auto& [rows, cols] : tables) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(request.tables.size() - 1);
    table.num_embeddings = rows;
    table.embedding_dim = cols;
  }
  request.topology.devices.assign(static_cast<std::size_t>(ranks), {0, 1'000'000});
  return request;
}

TEST(DistributedEmbeddingsStrategyTest, ReplicatesCutsRowsAndCutsColumnsByTheThresholds) {
  PlanRequest request = Request({{5, 4}, {7, 64}, {20, 8}, {4, 16}}, 4);
  request.search.distributed_embeddings = {.column_slice_threshold_elements = 80,
                                           .row_slice_threshold_elements = 448,
                                           .data_parallel_threshold_elements = 20,
                                           .gpu_embedding_size_elements = {}};
  NS_ASSERT_OK_AND_ASSIGN(
      const SearchResult result,
      RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr));
  const std::vector<TablePlan>& tables = result.plan.tables;
  using Shards = std::vector<Shard>;
  EXPECT_EQ(tables[0].sharding_type, ShardingType::kDataParallel);
  EXPECT_EQ(tables[0].compute_kernel, ComputeKernel::kDense);
  EXPECT_EQ(tables[0].shards,
            (Shards{{0, 5, 0, 4, 0}, {0, 5, 0, 4, 1}, {0, 5, 0, 4, 2}, {0, 5, 0, 4, 3}}));
  EXPECT_EQ(tables[1].sharding_type, ShardingType::kRowWiseSubset);
  EXPECT_EQ(tables[1].shards,
            (Shards{{0, 2, 0, 64, 0}, {2, 2, 0, 64, 1}, {4, 2, 0, 64, 2}, {6, 1, 0, 64, 3}}));
  EXPECT_EQ(tables[2].sharding_type, ShardingType::kColumnWise);
  EXPECT_EQ(tables[2].shards, (Shards{{0, 20, 0, 4, 0}, {0, 20, 4, 4, 1}}));
  EXPECT_EQ(tables[3].sharding_type, ShardingType::kTableWise);
  EXPECT_EQ(tables[3].shards, (Shards{{0, 4, 0, 16, 2}}));
  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
}

TEST(DistributedEmbeddingsStrategyTest, APlanThatDoesNotFitIsNoAnswerAndNamesTheRank) {
  PlanRequest request = Request({{100, 8}, {1000, 8}}, 2);
  request.topology.devices[1].memory_bytes = 20'000;
  const auto result = RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr);
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(StartsWith("no plan was found: the plan of 'basic' does not "
                                                "fit: rank 1 needs 32000 bytes"),
                                     HasSubstr("has 20000 bytes"))));
}

// Two ranks with room for 1,000 elements each; hosts have room for all.
TEST(DistributedEmbeddingsStrategyTest, TheLargestTablesOfARankAreOffloaded) {
  PlanRequest request = Request({{10, 8}, {100, 16}, {50, 8}, {60, 16}}, 2);
  for (Device& device : request.topology.devices) device.memory_bytes = 4000;
  request.search.distributed_embeddings.gpu_embedding_size_elements = 1000;
  EXPECT_THAT(RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("search.distributed_embeddings.gpu_embedding_size_elements"),
                             HasSubstr("needs topology.hosts[].host_memory_bytes"))));
  request.topology.host_memory_bytes = {1000};
  EXPECT_THAT(
      RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(StartsWith("no plan was found: the plan of 'basic' does not fit: host 0 "
                                "needs 6400 bytes (6.25 KiB) of its memory"),
                     HasSubstr("5400 bytes over"))));
  request.topology.host_memory_bytes = {1'000'000};
  const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
  NS_ASSERT_OK_AND_ASSIGN(const SearchResult result,
                          RunSearch(request, model, NeverStop(), nullptr));
  const std::vector<TablePlan>& tables = result.plan.tables;
  EXPECT_EQ(tables[0].compute_kernel, ComputeKernel::kFused);
  EXPECT_EQ(tables[1].compute_kernel, ComputeKernel::kOffload);
  EXPECT_EQ(tables[2].compute_kernel, ComputeKernel::kFused);
  EXPECT_EQ(tables[3].compute_kernel, ComputeKernel::kFused);
  EXPECT_THAT(CheckPlan(request, result.plan), IsEmpty());
}

// Where it may offload too, refine is never dearer; elsewhere it never offloads.
TEST(DistributedEmbeddingsStrategyTest, RefineOffloadsWhereListedAndCostsNoMore) {
  Random random(35);
  int cheaper = 0, offloads = 0;
  for (int i = 0; i < 5; ++i) {
    PlanRequest request = Request({}, 2);
    double elements = 0;
    for (int t = 0; t < 8; ++t) {
      Table& table = request.tables.emplace_back();
      table.name = "t" + std::to_string(t);
      table.num_embeddings = random.Between(1000, 100'000);
      table.embedding_dim = 32;
      table.pooling_factor = static_cast<double>(random.Between(1, 100));
      table.reuse_histogram = DefaultReuseHistogram();
      elements += 32 * static_cast<double>(table.num_embeddings);
    }
    request.global_batch_size = 2048;
    request.topology.bandwidths.host_memory_bytes_per_s = 600e9;
    request.topology.host_memory_bytes = {std::int64_t{1} << 40};
    const auto room = static_cast<std::int64_t>(elements * (0.1 + 0.4 * random.UniformReal()));
    for (Device& device : request.topology.devices) device.memory_bytes = 4 * room / 2;
    request.search.strategy = "memory_balanced";
    request.search.distributed_embeddings.gpu_embedding_size_elements = room / 2;
    const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult peer,
                            RunSearch(request, model, NeverStop(), nullptr));
    const auto is_offloaded = [](const TablePlan& table) {
      return table.compute_kernel == ComputeKernel::kOffload;
    };
    request.search.strategy = "refine";
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult without,
                            RunSearch(request, model, NeverStop(), nullptr));
    EXPECT_EQ(std::count_if(without.plan.tables.begin(), without.plan.tables.end(), is_offloaded),
              0);
    using enum ComputeKernel;
    TableRule& rule = request.constraints.tables.emplace_back();
    rule.tables = {0, 1, 2, 3, 4, 5, 6, 7};
    rule.compute_kernels = {kFused, kDense, kFusedUvm, kFusedUvmCaching, kOffload};
    NS_ASSERT_OK_AND_ASSIGN(const SearchResult with,
                            RunSearch(request, model, NeverStop(), nullptr));
    EXPECT_THAT(CheckPlan(request, with.plan), IsEmpty());
    EXPECT_LE(with.cost.embedding_cost_ms, peer.cost.embedding_cost_ms);
    cheaper += with.cost.embedding_cost_ms < without.cost.embedding_cost_ms ? 1 : 0;
    offloads += static_cast<int>(
        std::count_if(with.plan.tables.begin(), with.plan.tables.end(), is_offloaded));
  }
  EXPECT_GT(cheaper, 2);
  EXPECT_GT(offloads, 5);
}

TEST(DistributedEmbeddingsStrategyTest, EveryPlanIsLegalWhateverTheThresholds) {
  Random random(33);
  int plans = 0;
  for (int i = 0; i < 3000; ++i) {
    PlanRequest request = RandomPlanRequest(random, {.min_slack = 1.5, .max_slack = 8});
    DistributedEmbeddingsOptions& options = request.search.distributed_embeddings;
    const auto any = [&]() -> std::optional<std::int64_t> {
      if (random.Below(3) == 0) return std::nullopt;
      return random.Between(0, std::int64_t{1} << random.Between(0, 20));
    };
    options = {any(), any(), any(), {}};
    for (const char* strategy : {"basic", "memory_balanced", "memory_optimized"}) {
      request.search.strategy = strategy;
      const auto result =
          RunSearch(request, BoundTo(request, FakeCostModel()), NeverStop(), nullptr);
      if (!result.ok()) {
        ASSERT_THAT(result, StatusIs(absl::StatusCode::kFailedPrecondition));
        continue;
      }
      ++plans;
      const std::vector<Violation> violations = CheckPlan(request, result->plan);
      ASSERT_THAT(violations, IsEmpty())
          << strategy << ", instance " << i << ": " << violations.front().field << " "
          << violations.front().description;
    }
  }
  EXPECT_GT(plans, 4000);
}

}  // namespace
}  // namespace neuroshard
