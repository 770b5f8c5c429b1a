#include "server/planner/condition_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ConditionWarningsTest, OneForEachConditionThatDiffers) {
  CostModelInfo model;
  model.name = "gpu";
  model.version = 7;
  model.global_batch_size = 65536;
  model.weight_dtype = "fp32";
  model.optimizer = "sgd";
  PlanRequest request;
  request.tables.resize(3);
  EXPECT_THAT(ConditionWarnings(request, model), IsEmpty());

  request.global_batch_size = 4096;
  request.tables[1].weight_dtype = DataType::kFp16;
  request.optimizer = Optimizer::kAdam;
  EXPECT_THAT(ConditionWarnings(request, model),
              ElementsAre(AllOf(HasSubstr("gpu version 7"), HasSubstr("batch size 65536"),
                                HasSubstr("has 4096")),
                          AllOf(HasSubstr("weight dtype fp32"), HasSubstr("1 tables of another")),
                          AllOf(HasSubstr("optimizer sgd"), HasSubstr("has adam"))));
}

TEST(ConditionWarningsTest, WhatTheModelDoesNotStateDoesNotDiffer) {
  PlanRequest request;
  request.tables.resize(1);
  request.optimizer = Optimizer::kAdam;
  EXPECT_THAT(ConditionWarnings(request, CostModelInfo()), IsEmpty());
}

TEST(ConditionWarningsTest, NamesTheTypesThatTheModelWasNotMadeFor) {
  CostModelInfo model;
  model.name = "gpu";
  model.sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
  PlanRequest request;
  request.constraints.sharding_types = {ShardingType::kTableWise, ShardingType::kDataParallel};
  request.constraints.tables.emplace_back().sharding_types = {ShardingType::kRowWise};
  EXPECT_THAT(ConditionWarnings(request, model),
              ElementsAre(HasSubstr("not made for row_wise, data_parallel: priced by volume")));

  request.constraints.tables.clear();
  request.constraints.sharding_types = {ShardingType::kColumnWise};
  EXPECT_THAT(ConditionWarnings(request, model), IsEmpty());
  Plan plan;  // by a strategy that has types of its own
  plan.tables.emplace_back().sharding_type = ShardingType::kRowWiseSubset;
  EXPECT_THAT(ConditionWarnings(request, model, plan),
              ElementsAre(HasSubstr("not made for row_wise_subset")));
}

TEST(ConditionWarningsTest, FormulasThatNobodyAskedForAreMentioned) {
  CostModelInfo model;
  model.name = "analytic";
  model.kind = kAnalyticKind;
  PlanRequest request;
  request.constraints.sharding_types = {ShardingType::kRowWiseSubset};
  EXPECT_THAT(ConditionWarnings(request, model), ElementsAre(HasSubstr("nothing was measured")));
  request.cost_model.name = "analytic";
  EXPECT_THAT(ConditionWarnings(request, model), IsEmpty());
}

}  // namespace
}  // namespace neuroshard
