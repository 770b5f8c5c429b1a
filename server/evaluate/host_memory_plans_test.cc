// Tables in host memory and on SSD: what is legal, what is counted and what is said.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/explain_plan.h"
#include "server/evaluate/lower_bound.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/placement_ledger.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/testing/violation_is.h"
#include "tests/support/fake_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum ComputeKernel;

// Two tables of 100 x 16 fp32 (6,400 bytes) on two hosts of two ranks with 8,000 bytes each; hosts
// have 10,000 bytes.
class HostMemoryPlansTest : public ::testing::Test {
 protected:
  HostMemoryPlansTest() {
    request_.memory.rule = MemoryRule::kWeightsOnly;
    request_.global_batch_size = 64;
    for (const char* name : {"a", "b"}) {
      Table& table = request_.tables.emplace_back();
      table.name = name;
      table.num_embeddings = 100;
      table.embedding_dim = 16;
      table.pooling_factor = 4;
    }
    request_.topology.devices = {{0, 8000}, {0, 8000}, {1, 8000}, {1, 8000}};
    request_.topology.host_memory_bytes = {10'000, 10'000};
    plan_.world_size = 4;
    plan_.local_world_size = 2;
    Put(kFused, 0, kFusedUvm, 0);
  }

  // Both tables are table_wise, a on rank 0, b on rank 1.
  void Put(ComputeKernel a, double a_factor, ComputeKernel b, double b_factor) {
    plan_.tables = {{"a", "", ShardingType::kTableWise, a, {{0, 100, 0, 16, 0}}, {}, a_factor},
                    {"b", "", ShardingType::kTableWise, b, {{0, 100, 0, 16, 1}}, {}, b_factor}};
  }
  TableRule& Rule() {
    TableRule& rule = request_.constraints.tables.emplace_back();
    rule.tables = {0};
    return rule;
  }
  std::vector<Violation> Check() const { return CheckPlan(request_, plan_); }
  CompiledRules Rules() const { return CompiledRules(request_, TypeSet::All()); }

  PlanRequest request_;
  Plan plan_;
};

TEST_F(HostMemoryPlansTest, AllHostsHaveWhatTheirRanksMayTake) {
  TierBytes shared = {};
  shared[MemoryTier::kHost] = 20'000;
  EXPECT_EQ(SharedBytes(request_.topology), shared);
  request_.topology.devices[0].max_host_memory_bytes = 1000;
  EXPECT_EQ(SharedBytes(request_.topology)[MemoryTier::kHost], 20'000)
      << "rank 1 may take the rest";
  request_.topology.devices[1].max_host_memory_bytes = 2000;
  request_.topology.ssd_bytes = {0, 5000};
  shared[MemoryTier::kHost] = 13'000;
  shared[MemoryTier::kSsd] = 5000;
  EXPECT_EQ(SharedBytes(request_.topology), shared);
  request_.topology.ssd_bytes.assign(2, std::int64_t{1} << 62);
  EXPECT_GT(SharedBytes(request_.topology)[MemoryTier::kSsd], std::int64_t{1} << 60);
}

TEST_F(HostMemoryPlansTest, KernelsInHostMemoryAreLegalWhereHostsHaveSome) {
  EXPECT_THAT(Check(), IsEmpty());
  request_.topology.host_memory_bytes.clear();
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[1].compute_kernel",
                                               "must be fused, since the topology states no "
                                               "memory of hosts (host_memory_bytes), got "
                                               "fused_uvm")));
}

TEST_F(HostMemoryPlansTest, CopiesAreInDeviceMemory) {
  plan_.tables[1] = {"b", "", ShardingType::kDataParallel, kFusedUvm, {}};
  for (int r = 0; r < 4; ++r) plan_.tables[1].shards.push_back({0, 100, 0, 16, r});
  EXPECT_THAT(Check(), Contains(ViolationIs("plan.tables[1].compute_kernel",
                                            "must be dense with data_parallel, got fused_uvm")));
}

TEST_F(HostMemoryPlansTest, LoadFactorsBelongToCaches) {
  Put(kFused, 0.5, kFusedUvmCaching, 0);
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[0].cache_load_factor",
                                               "must be 0 with fused, got 0.5"),
                                   ViolationIs("plan.tables[1].cache_load_factor",
                                               "must be in (0, 1] with fused_uvm_caching, got 0")));
}

TEST_F(HostMemoryPlansTest, HostsAndRanksHaveLimits) {
  Put(kFusedUvm, 0, kFusedUvmCaching, 0.25);
  request_.topology.devices[1].max_host_memory_bytes = 6'000;
  EXPECT_THAT(Check(),
              ElementsAre(ViolationIs("plan.tables",
                                      "rank 1 needs 6400 bytes (6.25 KiB) of the memory of "
                                      "host 0, but may take 6000 bytes"),
                          ViolationIs("plan.tables",
                                      "host 0 needs 12800 bytes (12.50 KiB) of its memory "
                                      "for the tables of its ranks, but has 10000 bytes")));
}

TEST_F(HostMemoryPlansTest, RulesOnKernelsAndLoadFactors) {
  Put(kFusedUvmCaching, 0.25, kFused, 0);
  Rule().compute_kernels = {kFusedUvmCaching};
  Rule().cache_load_factor = 0.5;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[0].cache_load_factor",
                                               "must be 0.5 (constraints.tables[1]."
                                               "cache_load_factor), got 0.25")));
  const CompiledRules rules = Rules();
  ASSERT_EQ(rules.of(0).residencies->size(), 1U);
  EXPECT_EQ(rules.residency(rules.of(0).residencies->front()), (Residency{kFusedUvmCaching, 0.5}));
  EXPECT_TRUE(rules.of(0).device_types.empty());
  EXPECT_FALSE(rules.of(0).types.contains(ShardingType::kDataParallel));
  EXPECT_TRUE(rules.of(0).types.contains(ShardingType::kRowWise));
}

TEST_F(HostMemoryPlansTest, WithoutRulesATableMayBeAnywhere) {
  const CompiledRules rules = Rules();
  const std::vector<int>& of = *rules.of(0).residencies;
  EXPECT_EQ(rules.residency(of.front()).kernel, kFusedUvm);
  EXPECT_EQ(of.back(), 0);
  for (std::size_t i = 2; i + 1 < of.size(); ++i) {
    EXPECT_LT(rules.residency(of[i - 1]).cache_load_factor,
              rules.residency(of[i]).cache_load_factor);
  }
  request_.topology.host_memory_bytes.clear();
  EXPECT_THAT(*Rules().of(0).residencies, ElementsAre(0));
  Rule().compute_kernels = {kDense};
  EXPECT_EQ(Rules().of(0).types, TypeSet{ShardingType::kDataParallel});
}

TEST_F(HostMemoryPlansTest, OffloadIsForTablesWhoseRulesListItOrThatHaveIt) {
  Put(kFused, 0, kOffload, 0);
  EXPECT_THAT(Check(), IsEmpty());
  const auto may_be = [&](int table) {
    const CompiledRules rules = Rules();
    const std::vector<int>& of = *rules.of(table).residencies;
    const auto position = rules.PositionOf({kOffload, 0});
    return position != 0 && std::find(of.begin(), of.end(), position) != of.end();
  };
  EXPECT_FALSE(may_be(0));
  Rule().compute_kernels = {kFused, kOffload};
  EXPECT_TRUE(may_be(0));
  EXPECT_FALSE(may_be(1));
  EXPECT_EQ(Rules().of(0).residencies->size(), 2U);
  Rule().compute_kernels = {kFused, kFusedUvm};
  EXPECT_FALSE(may_be(0));
  Rule().compute_kernels = {kFused, kOffload};
  EXPECT_FALSE(may_be(0));

  request_.constraints = {};
  request_.migration.emplace().previous = plan_;
  EXPECT_FALSE(may_be(0));
  EXPECT_TRUE(may_be(1));
  Rule().tables = {1};
  request_.constraints.tables.back().compute_kernels = {kFused};
  EXPECT_FALSE(may_be(1));

  request_.constraints = {};
  request_.topology.host_memory_bytes.clear();
  EXPECT_FALSE(may_be(1));
  EXPECT_THAT(Check(), Contains(ViolationIs("plan.tables[1].compute_kernel",
                                            "must be fused, since the topology states no "
                                            "memory of hosts (host_memory_bytes), got "
                                            "offload")));
}

TEST_F(HostMemoryPlansTest, DynamicTablesAreThoseWhoseRulesListThemOrThatAre) {
  const auto kernels_of = [&](int table) {
    std::vector<ComputeKernel> kernels;
    const CompiledRules rules = Rules();
    for (const int position : *rules.of(table).residencies) {
      const ComputeKernel kernel = rules.residency(position).kernel;
      if (kernels.empty() || kernels.back() != kernel) kernels.push_back(kernel);
    }
    return kernels;
  };
  EXPECT_THAT(kernels_of(0), ElementsAre(kFusedUvm, kFusedUvmCaching, kFused));
  Rule().compute_kernels = {kDynamicCaching, kDynamicHybrid};
  EXPECT_THAT(kernels_of(0), ElementsAre(kDynamicHybrid, kDynamicCaching, kDynamicHybrid));
  const CompiledRules rules = Rules();
  // Any share of HYBRID may be the one that both memories have room for; CACHING takes more of one
  // and no less of the other.
  EXPECT_EQ(rules.PlacesOffDevice(0).size(), 10U);
  EXPECT_EQ(rules.residency(rules.LeastOnDevice(0)[0]), (Residency{kDynamicHybrid, 0.1}));
  EXPECT_EQ(rules.residency(rules.of(0).residencies->back()), (Residency{kDynamicHybrid, 1}));
  EXPECT_EQ(rules.PlacesOffDevice(1).size(), rules.LeastOnDevice(1).size());
  Rule().cache_load_factor = 0.7;
  EXPECT_EQ(Rules().of(0).residencies->size(), 2U);
  Rule().compute_kernels = {kDynamicCaching, kFused};
  EXPECT_THAT(kernels_of(0), ElementsAre(kDynamicCaching));

  request_.constraints = {};
  Put(kDynamicHybrid, 0.35, kFusedUvm, 0);
  request_.migration.emplace().previous = plan_;
  EXPECT_THAT(kernels_of(0), ElementsAre(kDynamicHybrid, kDynamicCaching, kDynamicHybrid));
  EXPECT_NE(Rules().PositionOf({kDynamicHybrid, 0.35}), 0);
  EXPECT_THAT(kernels_of(1), ElementsAre(kFusedUvm, kFusedUvmCaching, kFused));
  // HYBRID of the same share as CACHING takes less host memory, and no more of the device.
  Put(kDynamicCaching, 0.05, kFusedUvm, 0);
  request_.migration->previous = plan_;
  EXPECT_EQ(Rules().residency(Rules().LeastOnDevice(0)[0]), (Residency{kDynamicHybrid, 0.05}));
}

// The same, with 20,000 bytes of SSD a host.
class SsdPlansTest : public HostMemoryPlansTest {
 protected:
  SsdPlansTest() {
    request_.topology.ssd_bytes = {20'000, 20'000};
    Put(kFused, 0, kKeyValue, 0.25);
  }
  bool MayBeOnSsd(int table) const {
    const CompiledRules rules = Rules();
    const OffDevice least = rules.LeastOnDevice(table);
    return std::any_of(least.begin(), least.end(), [&](int position) {
      return rules.residency(position).tier() == MemoryTier::kSsd;
    });
  }
};

TEST_F(SsdPlansTest, KeyValueIsLegalWhereHostsHaveSsds) {
  EXPECT_THAT(Check(), IsEmpty());
  Put(kFused, 0.5, kKeyValue, 1.5);
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[0].cache_load_factor",
                                               "must be 0 with fused, got 0.5"),
                                   ViolationIs("plan.tables[1].cache_load_factor",
                                               "must be in (0, 1] with key_value, got 1.5"),
                                   ViolationIs("plan.tables",
                                               "rank 1 needs 9600 bytes (9.38 KiB), 0 of it "
                                               "reserve, but has 8000 bytes (7.81 KiB): 1600 bytes "
                                               "over")));
  Put(kFused, 0, kKeyValue, 0.25);
  request_.tables[1].weight_dtype = DataType::kBf16;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[1].compute_kernel",
                                               "must not be key_value, which FBGEMM has for fp32 "
                                               "and fp16; the table is bf16")));
  request_.tables[1].weight_dtype = DataType::kFp16;
  EXPECT_THAT(Check(), IsEmpty());
  request_.topology.ssd_bytes.clear();
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[1].compute_kernel",
                                               "must be fused, since the topology states no SSDs "
                                               "of hosts (ssd_bytes), got key_value")));
}

TEST_F(SsdPlansTest, NoRankHasTwoShardsOfATableOnSsd) {
  plan_.tables[1] = {"b",
                     "",
                     ShardingType::kColumnWise,
                     kKeyValue,
                     {{0, 100, 0, 4, 1}, {0, 100, 4, 4, 2}, {0, 100, 8, 8, 1}},
                     {},
                     0.25};
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[1].shards[2].rank",
                                               "must not be 1, where shards[0] is: a key_value "
                                               "table has one shard a rank")));
  plan_.tables[1].compute_kernel = kFusedUvmCaching;
  EXPECT_THAT(Check(), IsEmpty());
  plan_.tables[1].compute_kernel = kKeyValue;
  plan_.tables[1].shards[2].rank = 0;
  EXPECT_THAT(Check(), IsEmpty());

  plan_.tables[1].sharding_type = ShardingType::kDataParallel;
  plan_.tables[1].shards.clear();
  for (int r = 0; r < 4; ++r) plan_.tables[1].shards.push_back({0, 100, 0, 16, r});
  EXPECT_THAT(Check(), Contains(ViolationIs("plan.tables[1].compute_kernel",
                                            "must be dense with data_parallel, got key_value")));
}

TEST_F(SsdPlansTest, SsdsOfHostsAndRanksHaveLimits) {
  Put(kKeyValue, 0.25, kKeyValue, 0.25);
  EXPECT_THAT(Check(), IsEmpty());
  request_.topology.ssd_bytes = {10'000, 20'000};
  request_.topology.devices[1].max_ssd_bytes = 6'000;
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables",
                                               "rank 1 needs 6400 bytes (6.25 KiB) of the SSDs of "
                                               "host 0, but may take 6000 bytes (5.86 KiB) "
                                               "(max_ssd_bytes_per_device): 400 bytes over"),
                                   ViolationIs("plan.tables",
                                               "host 0 needs 12800 bytes (12.50 KiB) of its SSDs "
                                               "for the tables of its ranks, but has 10000 bytes "
                                               "(9.77 KiB) (ssd_bytes): 2800 bytes over")));
  // A cache in host memory takes that.
  request_.topology.ssd_bytes = {20'000, 20'000};
  request_.topology.devices[1].max_ssd_bytes = 0;
  request_.tables[1].l2_cache_bytes = 6'000;
  EXPECT_THAT(Check(), IsEmpty());
  request_.topology.host_memory_bytes = {5'000, 10'000};
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables", "host 0 needs 6000 bytes")));
  request_.topology.host_memory_bytes.clear();
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables", "host 0 needs 6000 bytes")));
}

TEST_F(SsdPlansTest, KeyValueIsForTablesWhoseRulesListItOrThatHaveIt) {
  EXPECT_FALSE(MayBeOnSsd(0));
  EXPECT_EQ(Rules().slowest_tier(), MemoryTier::kHost);
  Rule().compute_kernels = {kFused, kKeyValue};
  EXPECT_TRUE(MayBeOnSsd(0));
  EXPECT_FALSE(MayBeOnSsd(1));
  const CompiledRules rules = Rules();
  const std::vector<int>& of = *rules.of(0).residencies;
  EXPECT_EQ(rules.residency(of.front()).kernel, kKeyValue);
  EXPECT_EQ(of.back(), 0);
  for (std::size_t i = 1; i + 1 < of.size(); ++i) {
    EXPECT_LT(rules.residency(of[i - 1]).cache_load_factor,
              rules.residency(of[i]).cache_load_factor);
  }
  Rule().compute_kernels = {kFused};
  EXPECT_FALSE(MayBeOnSsd(0));

  request_.constraints = {};
  request_.migration.emplace().previous = plan_;
  request_.migration->previous.tables[1].cache_load_factor = 0.3721;
  EXPECT_FALSE(MayBeOnSsd(0));
  EXPECT_TRUE(MayBeOnSsd(1));
  EXPECT_NE(Rules().PositionOf({kKeyValue, 0.3721}), 0);
  EXPECT_EQ(Rules().PositionOf({kFusedUvmCaching, 0.3721}), 0);
  Rule().tables = {1};
  request_.constraints.tables.back().compute_kernels = {kFused};
  EXPECT_FALSE(MayBeOnSsd(1));

  request_.constraints = {};
  request_.topology.ssd_bytes.clear();
  EXPECT_FALSE(MayBeOnSsd(1));
}

TEST_F(SsdPlansTest, ARulesLoadFactorIsTheOnlyOneOfEitherCache) {
  Rule().compute_kernels = {kFusedUvmCaching, kKeyValue};
  Rule().cache_load_factor = 0.5;
  const CompiledRules rules = Rules();
  ASSERT_EQ(rules.of(0).residencies->size(), 2U);
  EXPECT_EQ(rules.residency(rules.of(0).residencies->front()), (Residency{kKeyValue, 0.5}));
  EXPECT_EQ(rules.residency(rules.of(0).residencies->back()), (Residency{kFusedUvmCaching, 0.5}));
  Put(kKeyValue, 0.25, kFused, 0);
  EXPECT_THAT(Check(), ElementsAre(ViolationIs("plan.tables[0].cache_load_factor",
                                               "must be 0.5 (constraints.tables[1]."
                                               "cache_load_factor), got 0.25")));
}

// TorchRec counts no cache without a size of it, so none is to be had for nothing.
TEST_F(SsdPlansTest, WhereMemoryCountsNoCacheItsShareIsTorchRecs) {
  Rule().compute_kernels = {kKeyValue};
  const auto count = [&] { return Rules().of(0).residencies->size(); };
  EXPECT_GT(count(), 10U);
  request_.memory.rule = MemoryRule::kTorchRec;
  ASSERT_EQ(count(), 1U);
  const CompiledRules rules = Rules();
  EXPECT_EQ(rules.residency(rules.of(0).residencies->front()), (Residency{kKeyValue, 0.2}));
  request_.tables[0].max_l1_cache_bytes = 1000;
  EXPECT_GT(count(), 10U);
}

TEST_F(SsdPlansTest, LedgersCountAllMemoriesAndKeepShardsApart) {
  const CompiledRules rules = Rules();
  PlacementLedger ledger(request_, rules);
  const ShardLayout on_ssd = {ShardingType::kColumnWise, kKeyValue, 1, 0.25};
  const std::vector<Shard> together = {{0, 100, 0, 8, 0}, {0, 100, 8, 8, 0}};
  const std::vector<Shard> apart = {{0, 100, 0, 8, 0}, {0, 100, 8, 8, 1}};
  EXPECT_EQ(ledger.Put(0, on_ssd, together), PlacementLedger::Answer::kAgainstRules);
  EXPECT_EQ(ledger.Put(0, on_ssd, apart), PlacementLedger::Answer::kYes);
  EXPECT_EQ(ledger.left_bytes(0), 8000 - 800);
  ledger.Take(0, on_ssd, apart);
  EXPECT_EQ(ledger.left_bytes(0), 8000);
  EXPECT_EQ(ledger.Put(0, on_ssd, apart), PlacementLedger::Answer::kYes);
  request_.topology.ssd_bytes = {10'000, 10'000};
  PlacementLedger small(request_, rules);
  EXPECT_EQ(small.Put(0, on_ssd, apart), PlacementLedger::Answer::kYes);
  EXPECT_EQ(small.Put(1, on_ssd, apart), PlacementLedger::Answer::kNoRoom);
  EXPECT_EQ(small.full_tier(), MemoryTier::kSsd);
}

TEST_F(SsdPlansTest, PricesCountSsds) {
  const BoundCostModel model = BoundTo(request_, *MakeAnalyticCostModel());
  const auto cost = PricePlan(request_, plan_, model);
  ASSERT_TRUE(cost.ok());
  EXPECT_THAT(cost->shared[MemoryTier::kSsd], ElementsAre(HostMemoryUse{0, 6400, 20'000}));
  EXPECT_THAT(cost->shared[MemoryTier::kHost], IsEmpty());
  EXPECT_EQ(cost->ranks[1].memory.total_bytes(), 1600);
  EXPECT_EQ(cost->ranks[1].memory.by_tier()[MemoryTier::kSsd], 6400);
}

TEST_F(SsdPlansTest, WhatGoesToSsdOrComesBackMoves) {
  request_.migration.emplace().previous = plan_;
  const auto moved = [&](ComputeKernel kernel, double factor) {
    Put(kFused, 0, kernel, factor);
    return ReportMigration(request_, plan_).moved_bytes;
  };
  EXPECT_EQ(moved(kKeyValue, 0.5), 0);
  EXPECT_EQ(moved(kFused, 0), 6400);
  EXPECT_EQ(moved(kFusedUvm, 0), 6400);
}

TEST_F(SsdPlansTest, BoundsHoldWhereSsdsAreSlower) {
  Rule().compute_kernels = {kFused, kKeyValue};
  const auto bound = [&] {
    return LowerBoundOf(request_, BoundTo(request_, *MakeAnalyticCostModel()));
  };
  EXPECT_EQ(bound().kind, BoundKind::kCertified);
  request_.topology.bandwidths.ssd_bytes_per_s =
      100 * request_.topology.bandwidths.device_memory_bytes_per_s;
  EXPECT_EQ(bound().kind, BoundKind::kReference);
}

TEST_F(SsdPlansTest, ExplanationsSayWhyATableIsNotInDeviceMemory) {
  const auto own = [&] {
    const auto all = ExplainPlan(request_, plan_, BoundTo(request_, *MakeAnalyticCostModel()));
    for (const TableAlternative& alternative : (*all)[1].alternatives) {
      if (alternative.sharding_type == ShardingType::kTableWise) return alternative;
    }
    return TableAlternative{};
  };
  EXPECT_TRUE(own().embedding_cost_ms.has_value());
  Rule().tables = {1};
  request_.constraints.tables.back().compute_kernels = {kKeyValue};
  EXPECT_EQ(own().reason, "in device memory: constraints allow no kernel with rows there");
}

TEST_F(HostMemoryPlansTest, TheLoadFactorInPlaceIsOneMore) {
  Put(kFusedUvmCaching, 0.3721, kFused, 0);
  request_.migration.emplace().previous = plan_;
  const CompiledRules rules = Rules();
  EXPECT_EQ(rules.of(0).residencies->size(), rules.of(1).residencies->size() + 1);
}

TEST_F(HostMemoryPlansTest, LedgersCountBothMemories) {
  const CompiledRules rules = Rules();
  PlacementLedger ledger(request_, rules);
  const ShardLayout uvm = {ShardingType::kTableWise, kFusedUvm};
  const std::vector<Shard> first = {{0, 100, 0, 16, 0}};
  const std::vector<Shard> second = {{0, 100, 0, 16, 1}};
  EXPECT_EQ(ledger.Put(0, uvm, first), PlacementLedger::Answer::kYes);
  EXPECT_EQ(ledger.left_bytes(0), 8000);
  EXPECT_EQ(ledger.Put(1, uvm, second), PlacementLedger::Answer::kNoRoom);
  EXPECT_EQ(ledger.full_tier(), MemoryTier::kHost);
  ledger.Take(0, uvm, first);
  EXPECT_EQ(ledger.Put(1, uvm, second), PlacementLedger::Answer::kYes);
}

TEST_F(HostMemoryPlansTest, PricesCountHostMemory) {
  const BoundCostModel model = BoundTo(request_, *MakeAnalyticCostModel());
  const auto cost = PricePlan(request_, plan_, model);
  ASSERT_TRUE(cost.ok());
  EXPECT_THAT(cost->shared[MemoryTier::kHost], ElementsAre(HostMemoryUse{0, 6400, 10'000}));
  EXPECT_EQ(cost->ranks[1].memory.total_bytes(), 0);
  Put(kFused, 0, kFused, 0);
  const auto fused = PricePlan(request_, plan_, model);
  ASSERT_TRUE(fused.ok());
  EXPECT_THAT(fused->shared[MemoryTier::kHost], IsEmpty());
  EXPECT_LT(fused->ranks[1].compute_ms, cost->ranks[1].compute_ms);
}

TEST_F(HostMemoryPlansTest, WhatChangesMemoryMoves) {
  request_.migration.emplace().previous = plan_;
  EXPECT_EQ(ReportMigration(request_, plan_).moved_bytes, 0);
  Put(kFused, 0, kFusedUvmCaching, 0.5);
  EXPECT_EQ(ReportMigration(request_, plan_).moved_bytes, 0);
  Put(kFused, 0, kFused, 0);
  EXPECT_EQ(ReportMigration(request_, plan_).moved_bytes, 6400);
}

TEST_F(HostMemoryPlansTest, BoundsHoldWhereFusedIsCheapest) {
  const auto bound = [&] {
    return LowerBoundOf(request_, BoundTo(request_, *MakeAnalyticCostModel()));
  };
  EXPECT_EQ(bound().kind, BoundKind::kCertified);
  request_.topology.bandwidths.host_to_device_bytes_per_s =
      100 * request_.topology.bandwidths.device_memory_bytes_per_s;
  EXPECT_EQ(bound().kind, BoundKind::kReference);
  request_.topology.host_memory_bytes.clear();
  EXPECT_EQ(bound().kind, BoundKind::kCertified);
}

TEST_F(HostMemoryPlansTest, ExplanationsSayWhyATableIsNotInDeviceMemory) {
  const auto own = [&] {
    const auto all = ExplainPlan(request_, plan_, BoundTo(request_, *MakeAnalyticCostModel()));
    for (const TableAlternative& alternative : (*all)[1].alternatives) {
      if (alternative.sharding_type == ShardingType::kTableWise) return alternative;
    }
    return TableAlternative{};
  };
  EXPECT_TRUE(own().embedding_cost_ms.has_value());
  for (Device& device : request_.topology.devices) device.memory_bytes = 6'000;
  EXPECT_THAT(own().reason,
              HasSubstr("in device memory: no place with enough free memory was found"));
  Migration& migration = request_.migration.emplace();
  migration.previous = plan_;
  migration.only_types = {ShardingType::kTableWise};
  EXPECT_EQ(own().reason, "in device memory: its kernel stays (migration.only_types)");
}

}  // namespace
}  // namespace neuroshard
