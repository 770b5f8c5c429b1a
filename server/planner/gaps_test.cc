#include "server/planner/gaps.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> WarningsOf(const PlanRequest& request, const CostModelInfo& model,
                                    const Plan& plan = {}) {
  return GapWarnings(GapsOf(request, model, plan), model);
}

TEST(GapsTest, OneForEachConditionThatDiffers) {
  CostModelInfo model;
  model.name = "gpu";
  model.version = 7;
  model.coverage.global_batch_size = 65536;
  model.coverage.weight_dtype = "fp32";
  model.coverage.optimizer = "sgd";
  PlanRequest request;
  request.tables.resize(3);
  EXPECT_THAT(WarningsOf(request, model), IsEmpty());

  request.global_batch_size = 4096;
  request.tables[1].weight_dtype = DataType::kFp16;
  request.optimizer = Optimizer::kAdam;
  EXPECT_THAT(WarningsOf(request, model),
              ElementsAre(AllOf(HasSubstr("gpu version 7"), HasSubstr("batch size 65536"),
                                HasSubstr("has 4096")),
                          AllOf(HasSubstr("weight dtype fp32"), HasSubstr("1 tables of another")),
                          AllOf(HasSubstr("optimizer sgd"), HasSubstr("has adam"))));
}

TEST(GapsTest, AModelOfManyConditionsWarnsOutsideThemAlone) {
  CostModelInfo model;
  model.name = "gpu";
  model.coverage.ranges = {1024, 65536, {"fp32", "bf16"}, {"sgd", "rowwise_adagrad"}, 2, 8, 1};
  PlanRequest request;
  request.topology.devices.resize(2);
  request.tables.resize(2);
  request.tables[1].weight_dtype = DataType::kBf16;
  request.optimizer = Optimizer::kRowwiseAdagrad;
  for (const std::int64_t inside : {1024, 5000, 65536}) {
    request.global_batch_size = inside;
    EXPECT_THAT(WarningsOf(request, model), IsEmpty());
  }
  request.global_batch_size = 65537;
  request.tables[0].weight_dtype = DataType::kFp16;
  request.optimizer = Optimizer::kAdam;
  EXPECT_THAT(WarningsOf(request, model),
              ElementsAre(AllOf(HasSubstr("1024 to 65536"), HasSubstr("has 65537")),
                          AllOf(HasSubstr("dtype fp32, bf16"), HasSubstr("1 tables of another")),
                          AllOf(HasSubstr("sgd, rowwise_adagrad"), HasSubstr("has adam"))));

  request = {};
  request.topology.devices.resize(1);
  EXPECT_THAT(WarningsOf(request, model), IsEmpty());
  request.topology.devices.resize(9);
  request.topology.devices.back().host = 1;
  EXPECT_THAT(
      WarningsOf(request, model),
      ElementsAre(AllOf(HasSubstr("2 to 8 ranks, the request has 9"), HasSubstr("extrapolated")),
                  AllOf(HasSubstr("on 1 host, the request has 2"),
                        HasSubstr("as if all ranks were on one"))));

  std::vector<ComputeSample> sets(3);
  for (ComputeSample& set : sets) set.batch_size = 2048;
  EXPECT_THAT(GapWarnings(GapsOf(sets, model), model), IsEmpty());
  sets[0].batch_size = 1;
  sets[2].shards.resize(5);
  sets[2].shards[4].weight_dtype = DataType::kFp16;
  sets[1].optimizer = Optimizer::kAdam;
  EXPECT_THAT(
      GapWarnings(GapsOf(sets, model), model),
      ElementsAre(HasSubstr("1 sets of"), HasSubstr("1 shards of"), HasSubstr("1 sets of")));
}

TEST(QualityWarningsTest, OneForEachStageThatIsFurtherOffThanUsual) {
  CostModelInfo model;
  model.name = "gpu";
  model.typical_errors["compute"] = 0.1;
  model.drift = {{"compute", 40, 1.05, 0.9, 1.2, "", "2026-11-21"},
                 {"forward_comm", 40, 1.2, 0.9, 1.2, "", "2026-11-21"}};
  EXPECT_THAT(QualityWarnings(model), IsEmpty());
  model.drift[0].median_ratio = 1.3;
  model.drift[1].median_ratio = 0.5;
  EXPECT_THAT(QualityWarnings(model),
              ElementsAre(AllOf(HasSubstr("compute took 1.30 times"), HasSubstr("10% off"),
                                HasSubstr("median of 40 measurements up to 2026-11-21")),
                          HasSubstr("forward_comm took 0.50 times")));
  model.drift.clear();
  model.unusable_reason = "tau 0.3";
  model.details = {{"metrics.all_reduce.mape_percent", "141"},
                   {"metrics.all_reduce.samples", "30"}};
  EXPECT_THAT(QualityWarnings(model),
              ElementsAre(AllOf(HasSubstr("cost model gpu version 0 should not be relied on"),
                                HasSubstr("marked as unusable: tau 0.3; all_reduce is 141% off"))));
}

TEST(GapsTest, WhatTheModelDoesNotStateDoesNotDiffer) {
  PlanRequest request;
  request.tables.resize(1);
  request.optimizer = Optimizer::kAdam;
  EXPECT_THAT(WarningsOf(request, CostModelInfo()), IsEmpty());
}

TEST(GapsTest, NamesTheTypesThatTheModelWasNotMadeFor) {
  CostModelInfo model;
  model.name = "gpu";
  model.coverage.sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
  PlanRequest request;
  request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kDataParallel};
  request.constraints.tables.emplace_back().sharding_types = {ShardingType::kRowWise};
  EXPECT_THAT(WarningsOf(request, model),
              ElementsAre(HasSubstr("not made for row_wise, data_parallel: priced by volume")));

  model.coverage.measured_types = {ShardingType::kRowWise};
  EXPECT_THAT(WarningsOf(request, model), ElementsAre(HasSubstr("not made for data_par")));

  request.constraints.tables.clear();
  request.constraints.sharding_types = {ShardingType::kColumnWise};
  EXPECT_THAT(WarningsOf(request, model), IsEmpty());
  request.topology.devices.resize(2);
  Plan plan;  // by a strategy that has types of its own
  plan.tables.emplace_back().sharding_type = ShardingType::kRowWiseSubset;
  EXPECT_THAT(WarningsOf(request, model, plan),
              ElementsAre(HasSubstr("exchanges of row_wise_subset were not measured")));
}

TEST(GapsTest, NamesEveryAddition) {
  CostModelInfo model;
  model.name = "gpu";
  model.version = 7;
  model.coverage.ranges = {256, 65536, {"fp32", "fp16"}, {"sgd", "adam"}, 1, 8, 1};
  model.coverage.measured_types = {ShardingType::kRowWise};
  PlanRequest request;
  request.topology.devices.resize(2);
  request.topology.host_memory_bytes = {1 << 30};
  request.tables.resize(3);
  Plan plan;
  plan.tables.resize(3);
  for (std::size_t t = 0; t < 3; ++t) {
    plan.tables[t].name = request.tables[t].name = std::string(1, static_cast<char>('a' + t));
  }
  EXPECT_THAT(GapsOf(request, model, plan), IsEmpty());
  EXPECT_THAT(WarningsOf(request, model, plan), IsEmpty());

  plan.tables[1].compute_kernel = ComputeKernel::kFusedUvm;
  request.topology.bandwidths.host_to_device_bytes_per_s = 50e9;
  request.tables[0].kind = TableKind::kEmbedding;
  request.tables[1].weight_dtype = DataType::kInt8;
  request.tables[1].output_dtype = DataType::kBf16;
  request.tables[2].num_poolings = {2};
  request.quantized_comms.backward_dtype = DataType::kFp16;
  request.optimizer = Optimizer::kLamb;
  const auto in = [](const auto& text, std::initializer_list<CostStage> stages) {
    return AllOf(Field(&Gap::difference, text), Field(&Gap::stages, ElementsAreArray(stages)));
  };
  constexpr auto kCompute = CostStage::kCompute;
  constexpr auto kForward = CostStage::kForwardComm;
  constexpr auto kBackward = CostStage::kBackwardComm;
  EXPECT_THAT(
      GapsOf(request, model, plan),
      ElementsAre(
          in(AllOf(HasSubstr("rows in host memory were not"), HasSubstr("50 GB/s")), {kCompute}),
          in(HasSubstr("unpooled tables"), {kCompute, kForward, kBackward}),
          in(HasSubstr("bags and batches by feature"), {kCompute, kForward, kBackward}),
          in(HasSubstr("rows of int8 were not measured: priced as fp16"), {kCompute}),
          in(HasSubstr("vectors of bf16"), {kCompute, kForward, kBackward}),
          in(HasSubstr("exchanges in fp16"), {kCompute, kBackward}),
          in(HasSubstr("lamb was not measured: priced as adam"), {kCompute})));
  const std::vector<std::string> warnings = WarningsOf(request, model, plan);
  ASSERT_EQ(warnings.size(), 7);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("gpu version 7: rows in host memory"),
                                 HasSubstr("do not forecast times")));

  plan.tables[2].compute_kernel = ComputeKernel::kOffload;
  request.topology.bandwidths.host_memory_bytes_per_s = 300e9;
  EXPECT_THAT(
      GapsOf(request, model, plan).front().difference,
      AllOf(HasSubstr("lookups by the host (offload) were not measured"), HasSubstr("300 GB/s")));
  plan.tables[2].compute_kernel = ComputeKernel::kKeyValue;
  EXPECT_THAT(
      GapsOf(request, model, plan)[1].difference,
      AllOf(HasSubstr("rows on SSD (key_value) were not measured"),
            HasSubstr("0.105 GB/s a device (bandwidths.ssd_bytes_per_s, TorchRec's default"),
            HasSubstr("50 GB/s")));
  request.topology.bandwidths.ssd_bytes_per_s = 7e9;
  EXPECT_THAT(GapsOf(request, model, plan)[1].difference,
              HasSubstr("at 7 GB/s a device (bandwidths.ssd_bytes_per_s), and"));
  plan.tables[2].compute_kernel = ComputeKernel::kFused;

  std::vector<ComputeSample> sets(2);
  for (ComputeSample& set : sets) set.batch_size = 1024;
  sets[1].optimizer = Optimizer::kLamb;
  sets[1].shards.resize(1);
  for (const DataType dtype : {DataType::kInt4, DataType::kFp8}) {
    sets[1].shards[0].weight_dtype = dtype;
    EXPECT_THAT(GapWarnings(GapsOf(sets, model), model),
                ElementsAre(HasSubstr(fmt::format("rows of {} were not measured", ToText(dtype))),
                            HasSubstr("lamb was not measured")));
  }

  request.optimizer = Optimizer::kNone;
  EXPECT_THAT(GapsOf(request, model, plan).back().difference,
              HasSubstr("priced as the forward passes of training with"));
  request.optimizer = Optimizer::kLamb;

  model.coverage.ranges.weight_dtypes.push_back("int8");
  model.coverage.ranges.optimizers.push_back("lamb");
  EXPECT_EQ(GapsOf(request, model, plan).size(), 5);
  model.properties.measured_casts.fp16 = CastRates{0.5, 0, 0.5};
  EXPECT_EQ(GapsOf(request, model, plan).size(), 4);
  plan.tables[0].sharding_type = ShardingType::kRowWise;
  EXPECT_EQ(GapsOf(request, model, plan).size(), 4) << "vectors of ids are not added up";
  plan.tables[1].sharding_type = ShardingType::kRowWise;
  EXPECT_THAT(GapsOf(request, model, plan),
              Contains(in(HasSubstr("exchanges of cut rows in fp16"), {kCompute, kBackward})));
  model.kind = kAnalyticKind;
  EXPECT_THAT(GapsOf(request, model, plan),
              ElementsAre(AllOf(Field(&Gap::difference, IsEmpty()), Field(&Gap::warning, IsEmpty()),
                                Field(&Gap::kind, BasisKind::kPublished))));
}

TEST(GapsTest, AStageThatFormulasPriceAloneIsPublishedWhateverElseItHas) {
  const std::vector<CostStage> stages = {CostStage::kForwardComm};
  const Gap partly = {.stages = stages};
  const Gap alone = {.stages = stages, .kind = BasisKind::kPublished};
  EXPECT_EQ(KindOf(CostStage::kForwardComm, {partly}), BasisKind::kMixed);
  EXPECT_EQ(KindOf(CostStage::kForwardComm, {partly, alone}), BasisKind::kPublished);
  EXPECT_EQ(KindOf(CostStage::kForwardComm, {alone, partly}), BasisKind::kPublished);
  EXPECT_EQ(KindOf(CostStage::kCompute, {alone, partly}), BasisKind::kMeasured);
}

TEST(GapsTest, CommunicationOfAFabricIsNotMeasured) {
  CostModelInfo model;
  model.name = "gpu";
  model.coverage.comm_fabric = "h100-nvlink4_ndr";
  PlanRequest request;
  request.topology.devices.resize(2);
  EXPECT_THAT(WarningsOf(request, model),
              ElementsAre(HasSubstr("communication is not measured (fabric h100-nvlink4_ndr)")));
  request.topology.devices.resize(1);
  EXPECT_THAT(WarningsOf(request, model), IsEmpty());
}

TEST(GapsTest, FormulasHaveEveryTypeAndNoConditions) {
  CostModelInfo model;
  model.name = "analytic";
  model.kind = kAnalyticKind;
  PlanRequest request;
  request.constraints.sharding_types = {ShardingType::kRowWiseSubset};
  EXPECT_THAT(WarningsOf(request, model), IsEmpty());
  for (const Gap& gap : GapsOf(request, model)) EXPECT_THAT(gap.condition, IsEmpty());
}

}  // namespace
}  // namespace neuroshard
