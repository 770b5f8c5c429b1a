#include "server/cost/step_comm.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/concave_cost_model.h"
#include "tests/support/fake_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::ConcaveComm;

StepRates Rates() {
  return {.num_ranks = 4,
          .compute_scale = 2,
          .comm_scale = 0.5,
          .exchange = {.whole_rows_ms = 1, .cut_rows_ms = 10, .replicas_ms = 100},
          .forward_share = 0.25,
          .input_dist_scale = 3,
          .input_dist = {.whole_rows_ms = 1000, .cut_rows_ms = 10'000},
          .pipelined_share = 0};
}

PricingConditions Conditions(std::vector<Table> tables, PipelineType pipeline = {}) {
  PlanRequest request;
  request.topology.devices.resize(4);
  request.tables = std::move(tables);
  PricingConditions conditions = ConditionsOf(request);
  conditions.pipeline_type = pipeline;
  return conditions;
}

Table TableOf(const char* module) {
  Table table;
  table.module = module;
  table.num_embeddings = 1000;
  table.embedding_dim = 16;
  table.pooling_factor = 1;
  return table;
}

ShardKinds KindsOf(const CommModel& comm, const Table& table, ShardingType type) {
  ShardLayout layout;
  layout.type = type;
  return comm.Load(FeaturesOf(table, layout, table.num_embeddings, table.embedding_dim)).kinds;
}

TEST(StepCommTest, APlacementPaysOnceForEachModuleAndShardingType) {
  const Table a = TableOf("a");
  const Table b = TableOf("b");
  const PricingConditions conditions = Conditions({a, b}, PipelineType::kTrainSparseDist);
  const auto comm = WithSteps(std::make_shared<const ConcaveComm>(conditions), Rates(), conditions);
  const ConcaveComm alone(conditions);

  const ShardKinds whole = KindsOf(*comm, a, ShardingType::kTableWise);
  ShardKinds kinds = whole;
  kinds |= whole;
  EXPECT_EQ(kinds, whole);
  EXPECT_FLOAT_EQ(comm->SetupOf(kinds).forward_ms, 0.5F * alone.SetupOf(kinds).forward_ms + 0.25F);
  EXPECT_FLOAT_EQ(comm->SetupOf(kinds).backward_ms,
                  0.5F * alone.SetupOf(kinds).backward_ms + 0.75F);

  kinds |= KindsOf(*comm, a, ShardingType::kColumnWise);    // 1
  kinds |= KindsOf(*comm, b, ShardingType::kTableWise);     // 1
  kinds |= KindsOf(*comm, b, ShardingType::kRowWise);       // 10
  kinds |= KindsOf(*comm, b, ShardingType::kTableRowWise);  // 10
  kinds |= KindsOf(*comm, a, ShardingType::kDataParallel);  // 100
  EXPECT_FLOAT_EQ(comm->SetupOf(kinds).forward_ms,
                  0.5F * alone.SetupOf(kinds).forward_ms + 0.25F * 123);
  EXPECT_EQ(comm->SetupOf({}).forward_ms, 0);
}

TEST(StepCommTest, ExchangesOfIdsCountWhereNoPipelineHidesThem) {
  const Table a = TableOf("a");
  const PricingConditions hidden = Conditions({a}, PipelineType::kTrainSparseDist);
  const PricingConditions exposed = Conditions({a}, PipelineType::kNone);
  const auto base = std::make_shared<const ConcaveComm>(hidden);
  const auto kinds = [&](const CommModel& comm) {
    ShardKinds of = KindsOf(comm, a, ShardingType::kTableWise);
    of |= KindsOf(comm, a, ShardingType::kRowWise);
    return of;
  };
  const auto pipelined = WithSteps(base, Rates(), hidden);
  const auto plain = WithSteps(base, Rates(), exposed);
  EXPECT_FLOAT_EQ(plain->SetupOf(kinds(*plain)).forward_ms,
                  pipelined->SetupOf(kinds(*pipelined)).forward_ms + 11'000);
  StepRates not_all_hidden = Rates();
  not_all_hidden.pipelined_share = 0.5;
  const auto partly = WithSteps(base, not_all_hidden, hidden);
  EXPECT_FLOAT_EQ(partly->SetupOf(kinds(*partly)).forward_ms,
                  pipelined->SetupOf(kinds(*pipelined)).forward_ms + 5'500);
  EXPECT_EQ(plain->SetupOf(kinds(*plain)).backward_ms,
            pipelined->SetupOf(kinds(*pipelined)).backward_ms);
}

TEST(StepCommTest, MoreModulesThanAreToldApartNeverPayForAnExchangeThatIsNotThere) {
  std::vector<Table> tables;
  for (const char* module : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}) {
    tables.push_back(TableOf(module));
  }
  const PricingConditions conditions = Conditions(tables, PipelineType::kTrainSparseDist);
  const auto comm = WithSteps(std::make_shared<const ConcaveComm>(conditions), Rates(), conditions);
  const ConcaveComm alone(conditions);
  ShardKinds kinds;
  for (const Table& table : tables) kinds |= KindsOf(*comm, table, ShardingType::kTableWise);
  EXPECT_FLOAT_EQ(comm->SetupOf(kinds).forward_ms,
                  0.5F * alone.SetupOf(kinds).forward_ms + 0.25F * 8);
}

TEST(StepCommTest, ABoundModelTakesTheRatesOfTheNearestNumberOfRanks) {
  StepRates of_64 = Rates();
  of_64.num_ranks = 64;
  of_64.compute_scale = 8;
  const MeasuredSteps steps{{Rates(), of_64}};
  EXPECT_EQ(steps.At(2).num_ranks, 4);
  EXPECT_EQ(steps.At(15).num_ranks, 4);
  EXPECT_EQ(steps.At(17).num_ranks, 64);
  EXPECT_EQ(steps.At(1000).num_ranks, 64);
  EXPECT_TRUE(steps.Covers(16));
  EXPECT_FALSE(steps.Covers(2));

  const auto compute_scale = [&](int num_ranks, bool has_steps) {
    ModelProperties properties;
    if (has_steps) properties.measured_steps = steps;
    return testing::BoundToRanks(num_ranks, testing::ConcaveCostModel(0, properties))
        .compute_scale(0);
  };
  EXPECT_EQ(compute_scale(4, false), 1);
  EXPECT_EQ(compute_scale(4, true), 2);
  EXPECT_EQ(compute_scale(64, true), 8);
  EXPECT_EQ(compute_scale(1, true), 1) << "one rank exchanges nothing";
}

TEST(StepCommTest, IdsAreScaledFromTheFormulaWhicheverBandwidthsARequestGives) {
  const Table table = TableOf("a");
  const auto ids_ms = [&](bool has_steps, double bytes_per_s) {
    PricingConditions conditions = Conditions({table}, PipelineType::kNone);
    if (bytes_per_s > 0) {
      conditions.bandwidths = {.device_memory_bytes_per_s = bytes_per_s,
                               .intra_host_bytes_per_s = bytes_per_s,
                               .inter_host_bytes_per_s = bytes_per_s};
    }
    ModelProperties properties;
    if (has_steps) properties.measured_steps = MeasuredSteps{{Rates()}};
    const BoundCostModel model = testing::ConcaveCostModel(0, properties).Bind(conditions).value();
    return model.input_dist()->Ms(FeaturesOf(table, {}, table.num_embeddings, table.embedding_dim));
  };
  EXPECT_LT(ids_ms(false, 0), ids_ms(false, 1e6));
  EXPECT_GT(ids_ms(true, 0), 0);
  EXPECT_EQ(ids_ms(true, 0), ids_ms(true, 1e6));
}

}  // namespace
}  // namespace neuroshard
