#include "common/codec/plan_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

Plan SomePlan() {
  Plan plan;
  plan.world_size = 2;
  plan.local_world_size = 2;
  plan.tables.push_back({"a",
                         "sparse",
                         ShardingType::kColumnWise,
                         ComputeKernel::kFused,
                         {{0, 100, 0, 32, 1}, {0, 100, 32, 32, 0}}});
  plan.tables.push_back(
      {"b", "", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 7, 0, 5, 1}}});
  return plan;
}

TEST(PlanCodecTest, PlansComeBack) {
  const auto plan = DecodePlan(EncodePlan(SomePlan()));
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  EXPECT_EQ(*plan, SomePlan());
}

TEST(PlanCodecTest, ListsWhatIsNoPlan) {
  v1::Plan message = EncodePlan(SomePlan());
  message.mutable_tables(0)->set_sharding_type("diagonal");
  message.mutable_tables(0)->mutable_shards(1)->set_rank(-1);
  message.mutable_tables(1)->clear_compute_kernel();
  message.mutable_tables(1)->clear_name();
  message.mutable_tables(1)->mutable_shards(0)->set_rows(std::int64_t{1} << 62);

  const std::vector<std::string> fields = FaultyFields(DecodePlan(message).status());

  EXPECT_THAT(fields, testing::UnorderedElementsAre(
                          "plan.tables[0].sharding_type", "plan.tables[0].shards[1].rank",
                          "plan.tables[1].compute_kernel", "plan.tables[1].name",
                          "plan.tables[1].shards[0].rows"));
}

TEST(PlanCodecTest, ACacheHasALoadFactorAndNothingElseHas) {
  Plan plan = SomePlan();
  plan.tables[1].compute_kernel = ComputeKernel::kFusedUvmCaching;
  plan.tables[1].cache_load_factor = 0.375;
  v1::Plan message = EncodePlan(plan);
  ASSERT_TRUE(DecodePlan(message).ok());
  EXPECT_EQ(*DecodePlan(message), plan);

  message.mutable_tables(1)->clear_cache_load_factor();
  EXPECT_EQ(DecodePlan(message)->tables[1].cache_load_factor, kDefaultCacheLoadFactor);
  for (const double bad : {0.0, 1.5, -0.5, std::numeric_limits<double>::quiet_NaN()}) {
    message.mutable_tables(1)->set_cache_load_factor(bad);
    EXPECT_THAT(FaultyFields(DecodePlan(message).status()),
                testing::ElementsAre("plan.tables[1].cache_load_factor"));
  }
  message.mutable_tables(1)->set_cache_load_factor(0.5);
  message.mutable_tables(1)->set_compute_kernel("fused_uvm");
  EXPECT_THAT(FaultyFields(DecodePlan(message).status()),
              testing::ElementsAre("plan.tables[1].cache_load_factor"));
}

TEST(PlanCodecTest, CostsComeBack) {
  PlanCost cost;
  cost.embedding_cost_ms = 3.5;
  cost.ranks.resize(2);
  cost.ranks[0].compute_ms = 1.5;
  cost.ranks[0].forward_compute_ms = 0.5;
  cost.ranks[0].backward_compute_ms = 1.0;
  cost.ranks[0].forward_comm_ms = 0.25;
  cost.ranks[0].backward_comm_ms = 0.125;
  cost.ranks[0].start_offset_ms = 0.75;
  cost.ranks[0].dim_sum = 96;
  MemoryUse& memory = cost.ranks[0].memory;
  memory = {.input_bytes = 3, .output_bytes = 4, .reserve_bytes = 5, .stashed_bytes = 1};
  memory.weights[MemoryTier::kDevice] = 1;
  memory.optimizer[MemoryTier::kDevice] = 2;
  memory.caches[MemoryTier::kDevice] = 6;
  memory.weights[MemoryTier::kHost] = 7;
  memory.optimizer[MemoryTier::kHost] = 8;
  memory.caches[MemoryTier::kHost] = 9;
  memory.weights[MemoryTier::kSsd] = 10;
  memory.optimizer[MemoryTier::kSsd] = 11;
  memory.caches[MemoryTier::kSsd] = 12;
  cost.ranks[0].capacity_bytes = 1000;
  cost.ranks[0].intervals = {CostInterval{1, 2},        CostInterval{0.25, 0.75},
                             CostInterval{0.5, 1.5},    CostInterval{0.125, 0.5},
                             CostInterval{0.125, 0.25}, CostInterval{1.5, 2.5}};
  cost.ranks[1].intervals.compute = CostInterval{0, 1};
  cost.interval_coverage = 0.9;
  cost.measured_with = {"Some CPU", "neuroshard-cpu", "neuroshard-tcp"};
  cost.interval = CostInterval{3, 4};
  cost.mean_of_max_ms = 4.5;
  cost.exchanges = {{"module", ShardingType::kRowWise, 0.75}, {"", ShardingType::kTableWise, 0.5}};
  cost.ranks[0].input_dist_ms = 0.5;
  cost.ranks[0].input_dist_hidden = false;
  cost.ranks[1].input_dist_ms = 0.25;
  cost.ranks[1].intervals.input_dist = CostInterval{0.125, 0.5};
  cost.shared[MemoryTier::kHost] = {{0, 15, 64}, {2, 7, 32}};
  cost.shared[MemoryTier::kSsd] = {{1, 150, 640}};

  const v1::PlanCost message = EncodePlanCost(cost);

  EXPECT_EQ(message.ranks(1).rank(), 1);
  EXPECT_EQ(message.ranks(0).total_ms(), 2.375);
  EXPECT_EQ(message.ranks(0).memory().total_bytes(), 21);
  EXPECT_EQ(message.ranks(0).memory().host_total_bytes(), 24);
  EXPECT_EQ(message.ranks(0).memory().ssd_total_bytes(), 33);
  EXPECT_EQ(message.ranks(0).memory().stashed_bytes(), 1);
  EXPECT_FALSE(message.ranks(1).has_forward_compute_ms());
  EXPECT_EQ(DecodePlanCost(message), cost);
}

TEST(PlanCodecTest, InputDistIsExposedWhereTotalsAreGreaterWhateverTheirRounding) {
  v1::PlanCost message;
  for (const double total_ms : {0.3, 0.3 + 1e-12, 0.4, 0.4 - 1e-12}) {
    v1::RankCost& rank = *message.add_ranks();
    rank.set_compute_ms(0.1);
    rank.set_forward_comm_ms(0.2);
    rank.set_input_dist_ms(0.1);
    rank.set_total_ms(total_ms);
  }
  const PlanCost cost = DecodePlanCost(message);
  EXPECT_TRUE(cost.ranks[0].input_dist_hidden) << "0.1 + 0.2 is not 0.3";
  EXPECT_TRUE(cost.ranks[1].input_dist_hidden);
  EXPECT_FALSE(cost.ranks[2].input_dist_hidden);
  EXPECT_FALSE(cost.ranks[3].input_dist_hidden);
}

}  // namespace
}  // namespace neuroshard
