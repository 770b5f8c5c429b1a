#include "server/evaluate/lower_bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/domain/memory_use.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/batch_imbalance.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/testing/table_prices.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::Cheapest;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::FakeCostModel;
using ::neuroshard::testing::Layouts;
using ::neuroshard::testing::RequestOfDims;
using ::neuroshard::testing::StatusIs;
using ::testing::HasSubstr;

LowerBound AnalyticBound(const PlanRequest& request) {
  return LowerBoundOf(request, BoundTo(request, *MakeAnalyticCostModel()));
}

// Of those of two tables that fit on every rank that has any. Infinite where none does.
double CheapestThatFits(const Layouts& a, const Layouts& b,
                        const std::vector<std::int64_t>& capacity_bytes) {
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.prices().size(); ++i) {
    for (std::size_t j = 0; j < b.prices().size(); ++j) {
      double cost = 0;
      for (std::size_t r = 0; r < a.prices()[i].size(); ++r) {
        const std::int64_t bytes = a.bytes()[i][r] + b.bytes()[j][r];
        const bool fits = bytes == 0 || bytes <= capacity_bytes[r];
        cost = fits ? std::max(cost, a.prices()[i][r] + b.prices()[j][r])
                    : std::numeric_limits<double>::infinity();
        if (cost >= best) break;
      }
      best = std::min(best, cost);
    }
  }
  return best;
}

void RandomizeRules(Random& random, PlanRequest& request) {
  for (const auto& word : kWords<ShardingType>) {
    if (random.Below(3) != 0) request.constraints.sharding_types.push_back(word.value);
  }
  TableRule rule;
  rule.tables = {0};
  if (random.Below(3) == 0) rule.max_shards = static_cast<int>(random.Between(1, 4));
  if (random.Below(3) == 0) rule.min_column_width = 8;
  if (random.Below(3) == 0) rule.distinct_ranks = true;
  if (random.Below(3) == 0) {
    rule.forbidden_ranks = {static_cast<int>(random.Below(request.topology.devices.size()))};
  }
  if (random.Below(2) == 0) rule.row_proportion = RowProportion::kSpeed;
  request.constraints.tables.push_back(rule);
}

TEST(LowerBoundTest, NoPlanOfTinyRequestsCostsLess) {
  Random random(7);
  std::array<double, 2> share_sum = {};  // of fleets that are alike, and that are not
  std::array<int, 2> compared = {};
  for (int round = 0; round < testing::Trials(120); ++round) {
    const int ranks = static_cast<int>(random.Between(1, 4));
    const bool wide = random.Below(2) == 0;
    const std::vector<std::int64_t> wide_dims = {64, 72, 128, 136};
    const std::vector<std::int64_t> narrow_dims = {3, 4, 8, 10, 16};
    const auto& dims = wide ? wide_dims : narrow_dims;
    PlanRequest request =
        RequestOfDims(ranks, static_cast<int>(random.Between(1, ranks)),
                      {dims[random.Below(dims.size())], dims[random.Below(dims.size())]});
    request.global_batch_size = random.Between(1, 10'000);
    if (round % 2 == 0) request.pipeline_type = PipelineType::kNone;  // ids count
    request.topology.bandwidths.inter_host_bytes_per_s *= 1 + 40 * random.UniformReal();
    for (Table& table : request.tables) {
      table.num_embeddings = random.Between(10, 100'000);
      table.pooling_factor = random.UniformReal() * (random.Below(2) == 0 ? 2 : 60);
      table.weighted = random.Below(3) == 0;
    }
    RandomizeRules(random, request);
    const std::size_t mixed = round % 3 == 0 ? 1 : 0;
    if (mixed == 1) {
      constexpr std::array<double, 4> kSpeeds = {1, 1.6, 0.5, 3};
      for (std::size_t r = 0; r < request.topology.devices.size(); ++r) {
        request.topology.devices[r].compute_speed = kSpeeds[r];
      }
    }
    const CompiledRules rules(request,
                              TypeSet(MakeAnalyticCostModel()->info().coverage.sharding_types));
    std::vector<Layouts> tables;
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      tables.emplace_back(request, request.tables[t], rules.tables()[t],
                          rules.row_cut(static_cast<int>(t)));
    }
    const double best_ms =
        Cheapest(tables, 0, std::vector<double>(request.topology.devices.size()));
    const LowerBound bound = AnalyticBound(request);
    EXPECT_EQ(bound.kind, BoundKind::kCertified);
    if (best_ms == std::numeric_limits<double>::infinity()) continue;
    EXPECT_LE(bound.cost_ms, best_ms * (1 + 1e-6)) << "round " << round;
    share_sum[mixed] += bound.cost_ms / best_ms;
    ++compared[mixed];
  }
  EXPECT_GE(compared[0], testing::FewestCases(51));
  EXPECT_GT(share_sum[0] / compared[0], 0.85);  // sound and worth stating
  EXPECT_GE(compared[1], testing::FewestCases(21));
  EXPECT_GT(share_sum[1] / compared[1], 0.6);
}

// Three tables, each with types, ranks and a kernel of its own, so that some lie on every rank and
// others have few to themselves.
TEST(LowerBoundTest, NoPlanCostsLessWhereTypesAreForced) {
  Random random(29);
  double share_sum = 0;
  int reached = 0;
  int compared = 0;
  for (int round = 0; round < testing::Trials(3000); ++round) {
    const int ranks = static_cast<int>(random.Between(1, 4));
    const std::vector<std::int64_t> dims = {3, 4, 8, 8, 12};
    PlanRequest request =
        RequestOfDims(ranks, static_cast<int>(random.Between(1, ranks)),
                      {dims[random.Below(5)], dims[random.Below(5)], dims[random.Below(2)]});
    request.global_batch_size = random.Between(1, 10'000);
    if (random.Below(3) == 0) request.pipeline_type = PipelineType::kNone;
    request.topology.bandwidths.inter_host_bytes_per_s *= 1 + 40 * random.UniformReal();
    if (random.Below(4) == 0) {
      for (Device& device : request.topology.devices) {
        device.compute_speed = random.Below(2) == 0 ? 1 : 2.5;
      }
    }
    const bool has_host_memory = random.Below(3) == 0;
    if (has_host_memory) {
      request.topology.host_memory_bytes.assign(request.topology.hosts().size(),
                                                std::int64_t{1} << 50);
    }
    std::vector<std::vector<Residency>> residencies;
    for (int t = 0; t < 3; ++t) {
      Table& table = request.tables[static_cast<std::size_t>(t)];
      table.num_embeddings = random.Between(10, 100'000);
      table.pooling_factor = random.UniformReal() * (random.Below(2) == 0 ? 2 : 60);
      TableRule& rule = request.constraints.tables.emplace_back();
      rule.tables = {t};
      for (std::uint64_t n = 1 + random.Below(2); n > 0; --n) {
        rule.sharding_types.push_back(
            kWords<ShardingType>[random.Below(kWords<ShardingType>.size())].value);
      }
      if (random.Below(4) == 0) {
        rule.ranks = {static_cast<int>(random.Below(static_cast<std::uint64_t>(ranks)))};
      }
      residencies.push_back({Residency{}});
      if (has_host_memory && random.Below(2) == 0) {
        const Residency residency = random.Below(2) == 0
                                        ? Residency{ComputeKernel::kFusedUvm, 0}
                                        : Residency{ComputeKernel::kFusedUvmCaching, 0.3};
        rule.compute_kernels = {residency.kernel};
        rule.cache_load_factor = residency.cache_load_factor;
        residencies.back() = {residency};
      }
    }
    const CompiledRules rules(request,
                              TypeSet(MakeAnalyticCostModel()->info().coverage.sharding_types));
    std::vector<Layouts> tables;
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      tables.emplace_back(request, request.tables[t], rules.tables()[t],
                          rules.row_cut(static_cast<int>(t)), residencies[t]);
    }
    const double best_ms =
        Cheapest(tables, 0, std::vector<double>(request.topology.devices.size()));
    if (best_ms == std::numeric_limits<double>::infinity()) continue;
    const LowerBound bound = AnalyticBound(request);
    ASSERT_EQ(bound.kind, BoundKind::kCertified);
    ASSERT_LE(bound.cost_ms, best_ms * (1 + 1e-6)) << "round " << round;
    share_sum += bound.cost_ms / best_ms;
    reached += bound.cost_ms > best_ms * (1 - 1e-6) ? 1 : 0;
    ++compared;
  }
  EXPECT_GE(compared, testing::FewestCases(601));
  EXPECT_GT(share_sum / compared, 0.9);
  EXPECT_GT(reached, compared / 2);
}

// What lies on every rank counts besides a table that must stay whole.
TEST(LowerBoundTest, TheLargestPieceHasWhatEveryRankHoldsBesideIt) {
  PlanRequest request = RequestOfDims(4, 4, {128, 64});
  request.constraints.tables.resize(2);
  request.constraints.tables[0].tables = {0};
  request.constraints.tables[0].sharding_types = {ShardingType::kRowWise};
  request.constraints.tables[1].tables = {1};
  request.constraints.tables[1].sharding_types = {ShardingType::kTableWise};
  Plan plan{4, 4, {}};
  plan.tables.resize(2);
  plan.tables[0].name = request.tables[0].name;
  plan.tables[0].sharding_type = ShardingType::kRowWise;
  for (int rank = 0; rank < 4; ++rank) {
    plan.tables[0].shards.push_back({rank * 250'000, 250'000, 0, 128, rank});
  }
  plan.tables[1].name = request.tables[1].name;
  plan.tables[1].shards = {{0, 1'000'000, 0, 64, 2}};
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost,
                          PricePlan(request, plan, BoundTo(request, *MakeAnalyticCostModel())));
  EXPECT_NEAR(AnalyticBound(request).cost_ms, cost.embedding_cost_ms,
              1e-6 * cost.embedding_cost_ms);
}

// Of five tables two share a rank of four.
TEST(LowerBoundTest, MoreWholeTablesThanRanksShareOne) {
  PlanRequest request = RequestOfDims(4, 4, {128, 128, 128, 128, 128});
  request.constraints.sharding_types = {ShardingType::kTableWise};
  const double five_ms = AnalyticBound(request).cost_ms;
  request.tables.pop_back();
  EXPECT_NEAR(five_ms, 2 * AnalyticBound(request).cost_ms, 1e-6 * five_ms);
}

TEST(LowerBoundTest, NoPlanOfTinyRequestsThatFitsCostsLess) {
  Random random(11);
  double share_sum = 0;
  int compared = 0;
  int priced = 0;
  for (int round = 0; round < testing::Trials(800); ++round) {
    const int ranks = static_cast<int>(random.Between(1, 3));
    const std::vector<std::int64_t> dims = {3, 4, 8, 12, 64};
    PlanRequest request =
        RequestOfDims(ranks, static_cast<int>(random.Between(1, ranks)),
                      {dims[random.Below(dims.size())], dims[random.Below(dims.size())]});
    request.global_batch_size = random.Between(1, 1000);
    request.memory.rule = std::array{MemoryRule::kFull, MemoryRule::kWeightsOnly,
                                     MemoryRule::kTorchRec}[random.Below(3)];
    // Not none, the last, of which shards alone bound nothing.
    request.optimizer = kWords<Optimizer>[random.Below(kWords<Optimizer>.size() - 1)].value;
    if (random.Below(2) == 0) {
      request.pipeline_type = kWords<PipelineType>[random.Below(kWords<PipelineType>.size())].value;
    }
    for (Table& table : request.tables) {
      table.num_embeddings = random.Between(2, 100'000);
      table.pooling_factor = random.UniformReal() * (random.Below(2) == 0 ? 2 : 60);
      table.weighted = random.Below(3) == 0;
      if (random.Below(4) == 0) table.kind = TableKind::kEmbedding;
      if (table.kind == TableKind::kEmbedding) table.weighted = false;
    }
    std::vector<Residency> residencies = {{}, {ComputeKernel::kFusedUvm, 0}};
    for (int i = 0; i < 3; ++i) {
      residencies.push_back(
          {ComputeKernel::kFusedUvmCaching, std::pow(10, -5 * random.UniformReal())});
    }
    if (random.Below(4) == 0) {
      TableRule& rule = request.constraints.tables.emplace_back();
      rule.tables = {0, 1};
      for (const ComputeKernel kernel :
           {ComputeKernel::kFused, ComputeKernel::kFusedUvm, ComputeKernel::kFusedUvmCaching,
            ComputeKernel::kOffload}) {
        rule.compute_kernels.push_back(kernel);
      }
      residencies.push_back({ComputeKernel::kOffload, 0});
    }
    request.topology.host_memory_bytes.assign(request.topology.hosts().size(),
                                              std::int64_t{1} << 50);
    const CompiledRules rules(request,
                              TypeSet(MakeAnalyticCostModel()->info().coverage.sharding_types));
    const Layouts a(request, request.tables[0], rules.of(0), rules.row_cut(0), residencies);
    const Layouts b(request, request.tables[1], rules.of(1), rules.row_cut(1), residencies);
    // From next to nothing to more than enough.
    const MemoryUse most = ShardMemory(request, request.tables[0], 100'000, 64);
    if (random.Below(3) == 0) request.memory.reserve_bytes = random.Between(1, 3'000'000);
    std::vector<std::int64_t> capacity;
    for (Device& device : request.topology.devices) {
      const bool as_before = !capacity.empty() && random.Below(2) == 0;
      device.memory_bytes =
          as_before ? request.topology.devices.front().memory_bytes
                    : static_cast<std::int64_t>(static_cast<double>(most.total_bytes()) *
                                                std::pow(2, -12 * random.UniformReal()));
      capacity.push_back(device.memory_bytes - request.memory.reserve_bytes);
    }
    const double best_ms = CheapestThatFits(a, b, capacity);
    if (best_ms == std::numeric_limits<double>::infinity()) continue;
    const LowerBound bound = AnalyticBound(request);
    ASSERT_EQ(bound.kind, BoundKind::kCertified);
    EXPECT_LE(bound.cost_ms, best_ms * (1 + 1e-6)) << "round " << round;
    share_sum += bound.cost_ms / best_ms;
    ++compared;
    priced += bound.scope.find("fit into the memory") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(compared, testing::FewestCases(401));
  EXPECT_GE(priced, testing::FewestCases(201));
  EXPECT_GT(share_sum / compared, 0.4);
}

// A plan has to have memory for the mean of the batches; none of them has less for its rows.
TEST(LowerBoundTest, BatchesHaveTheMemoryOfTheRequest) {
  PlanRequest request = RequestOfDims(1, 1, {64});
  request.global_batch_size = 10'000;
  Table& table = request.tables[0];
  table.num_embeddings = 200'000;
  table.batch_pooling_factors.assign(10, 0);
  table.batch_pooling_factors.back() = 100;
  request.search.objective = PlanObjective::kMeanOfMax;
  request.topology.host_memory_bytes = {std::int64_t{1} << 40};
  request.topology.devices[0].memory_bytes = ShardMemory(request, table, 200'000, 64).total_bytes();
  Plan plan{1, 1, {}};
  plan.tables = {
      {table.name, "", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 200'000, 0, 64, 0}}}};
  EXPECT_THAT(CheckPlan(request, plan), ::testing::IsEmpty());
  const BoundCostModel model = BoundTo(request, *MakeAnalyticCostModel());
  const auto mean_ms = MeanOfMaxMs(request, plan, model, NeverStop());
  ASSERT_TRUE(mean_ms.ok() && mean_ms->has_value());
  const auto bound = LowerBoundOfMean(request, model, NeverStop());
  ASSERT_TRUE(bound.has_value());
  EXPECT_EQ(bound->kind, BoundKind::kCertified);
  EXPECT_LE(bound->cost_ms, **mean_ms * (1 + 1e-6));
  EXPECT_GT(bound->cost_ms, 0.8 * **mean_ms);
}

// Blocks by speed cost each rank the same but for communication, which is as fast on all ranks and
// little beside a thousand ids a sample.
TEST(LowerBoundTest, RowsInProportionToSpeedAreBoundedByTheirOwnPrices) {
  PlanRequest request = RequestOfDims(3, 3, {128});
  request.topology.devices[2].compute_speed = 4;
  request.tables[0].pooling_factor = 1000;
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {0};
  rule.sharding_types = {ShardingType::kRowWise};
  rule.row_proportion = RowProportion::kSpeed;
  const CompiledRules rules(request, TypeSet::All());
  const Layouts layouts(request, request.tables[0], rules.of(0), rules.row_cut(0));
  ASSERT_EQ(layouts.prices().size(), 1U);
  const std::vector<double>& ranks = layouts.prices()[0];
  const double cost_ms = *std::max_element(ranks.begin(), ranks.end());
  const double bound_ms = AnalyticBound(request).cost_ms;
  EXPECT_LE(bound_ms, cost_ms * (1 + 1e-6));
  EXPECT_GE(bound_ms, cost_ms * 0.98);
}

// Two equal tables on two ranks: one each is best, and the bound says so.
TEST(LowerBoundTest, IsReachedWhereAnEvenSpreadExists) {
  PlanRequest request = RequestOfDims(2, 2, {128, 128});
  request.constraints.sharding_types = {ShardingType::kTableWise};
  Plan plan{2, 2, {}};
  for (int t = 0; t < 2; ++t) {
    TablePlan& table = plan.tables.emplace_back();
    table.name = request.tables[static_cast<std::size_t>(t)].name;
    table.shards = {{0, 1'000'000, 0, 128, t}};
  }
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost,
                          PricePlan(request, plan, BoundTo(request, *MakeAnalyticCostModel())));
  EXPECT_NEAR(AnalyticBound(request).cost_ms, cost.embedding_cost_ms, 1e-6);
}

// One table that must stay whole costs what it costs, however many ranks stand by.
TEST(LowerBoundTest, TheLargestPieceCountsBesidesTheSum) {
  PlanRequest request = RequestOfDims(64, 8, {128});
  const double free_ms = AnalyticBound(request).cost_ms;
  TableRule rule;
  rule.tables = {0};
  rule.sharding_types = {ShardingType::kTableWise};
  request.constraints.tables = {rule};
  const double whole_ms = AnalyticBound(request).cost_ms;
  EXPECT_GT(whole_ms, 1.5 * free_ms);

  request.tables.push_back(request.tables[0]);  // a second one fits beside it
  request.tables[1].name = "other";
  EXPECT_EQ(AnalyticBound(request).cost_ms, whole_ms);
}

TEST(LowerBoundTest, WideTablesAreBoundedAsTightlyAsNarrowOnes) {
  // 65536 columns are probed at growing widths; nothing else is allowed.
  PlanRequest request = RequestOfDims(4, 4, {65536});
  request.constraints.sharding_types = {ShardingType::kColumnWise};
  Plan plan{4, 4, {}};
  plan.tables.emplace_back().name = request.tables[0].name;
  plan.tables[0].sharding_type = ShardingType::kColumnWise;
  for (int rank = 0; rank < 4; ++rank) {
    plan.tables[0].shards.push_back({0, 1'000'000, rank * 16384, 16384, rank});
  }
  NS_ASSERT_OK_AND_ASSIGN(const PlanCost cost,
                          PricePlan(request, plan, BoundTo(request, *MakeAnalyticCostModel())));
  const double bound_ms = AnalyticBound(request).cost_ms;
  EXPECT_LE(bound_ms, cost.embedding_cost_ms * (1 + 1e-6));
  EXPECT_GE(bound_ms, cost.embedding_cost_ms * 0.97);
}

// compute 1 + sum / 100 ms, communication dims / 1000 ms each way: 4 tables of 16 columns and 10
// ids on 2 ranks.
TEST(LowerBoundTest, AModelWithoutPromisesGivesAReference) {
  const PlanRequest request = RequestOfDims(2, 2, {16, 16, 16, 16});
  const LowerBound bound = LowerBoundOf(request, BoundTo(request, FakeCostModel()));
  EXPECT_EQ(bound.kind, BoundKind::kReference);
  EXPECT_THAT(bound.scope, HasSubstr("plans may cost less"));
  EXPECT_NEAR(bound.cost_ms, 1 + 3.2 + 2 * 0.032, 1e-6);
}

// The fake model's head is 1 + x / 100, which is convex: two ranks with two tables each cost at
// least 4.2 ms, but both tables on one rank would leave the other without the constant.
TEST(LowerBoundTest, AConvexHeadBoundsPlansOfWholeTables) {
  CostModelInfo info;
  info.name = "convex";
  info.properties.convex_compute = true;
  const FakeCostModel model(info);
  PlanRequest request = RequestOfDims(2, 2, {16, 16, 16, 16});
  EXPECT_EQ(LowerBoundOf(request, BoundTo(request, model)).kind, BoundKind::kReference);
  request.constraints.sharding_types = {ShardingType::kTableWise};
  const LowerBound bound = LowerBoundOf(request, BoundTo(request, model));
  EXPECT_EQ(bound.kind, BoundKind::kCertified);
  EXPECT_THAT(bound.scope, HasSubstr("whole tables"));
  EXPECT_NEAR(bound.cost_ms, 4.2, 1e-6);
}

}  // namespace
}  // namespace neuroshard
