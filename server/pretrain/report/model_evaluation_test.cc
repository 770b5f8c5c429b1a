#include "server/pretrain/report/model_evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/pretrain/testing/synthetic_records.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// compute = sum of dims; comm of rank r = its dim sum (+ its offset); knows 2 ranks.
class DimModel final : public CostModel {
 public:
  DimModel() {
    info_.num_devices = {2};
    info_.global_batch_size = 1024;
    info_.optimizer = "sgd";
  }
  const CostModelInfo& info() const override { return info_; }
  Status CheckConditions(const PricingConditions&) const override { return absl::OkStatus(); }
  int representation_width() const override { return 1; }
  void Represent(const PricingConditions& /*conditions*/, std::span<const ShardFeatures> shards,
                 std::span<float> out, std::span<CommLoad> loads) const override {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      out[i] = static_cast<float>(shards[i].cols);
      loads[i] = {out[i], out[i]};
    }
  }
  void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out) const override {
    for (std::size_t i = 0; i < sums.size(); ++i) out[i].total_ms = sums[i];
  }
  void BackwardCommCosts(int, std::span<const float> dim_sums,
                         std::span<float> cost_ms) const override {
    std::copy(dim_sums.begin(), dim_sums.end(), cost_ms.begin());
  }
  void ForwardCommCosts(int, std::span<const float> dim_sums, std::span<const float> offsets,
                        std::span<float> cost_ms) const override {
    for (std::size_t i = 0; i < dim_sums.size(); ++i) cost_ms[i] = dim_sums[i] + offsets[i];
  }

 private:
  CostModelInfo info_;
};

TEST(ModelEvaluationTest, AModelThatIsRightIsPerfectOnEverySample) {
  auto compute = SyntheticComputeRecords(30);
  for (ComputeRecord& record : compute) {
    record.total_ms = 0;
    for (const auto& shard : record.sample.shards) {
      record.total_ms += static_cast<double>(shard.cols);
    }
  }
  auto comm = SyntheticCommRecords(20, 2);
  for (CommRecord& record : comm) {
    for (int rank = 0; rank < 2; ++rank) {
      record.cost_ms[rank] = static_cast<double>(record.sample.dim_sums[rank]);
      if (!record.sample.start_offsets_ms.empty()) {
        record.cost_ms[rank] += record.sample.start_offsets_ms[rank];
      }
    }
  }
  comm[1].sample.start_offsets_ms.clear();  // all enter together
  comm[1].cost_ms.assign(comm[1].sample.dim_sums.begin(), comm[1].sample.dim_sums.end());
  const auto unknown = SyntheticCommRecords(3, 4);
  comm.insert(comm.end(), unknown.begin(), unknown.end());

  const ModelEvaluation evaluation = EvaluateModel(DimModel(), compute, comm);

  EXPECT_EQ(evaluation.compute->samples, 30);
  EXPECT_EQ(evaluation.compute->mse, 0);
  EXPECT_EQ(evaluation.forward_comm->samples, 10);
  EXPECT_NEAR(evaluation.forward_comm->mse, 0, 1e-6);
  EXPECT_EQ(evaluation.backward_comm->samples, 10);
  EXPECT_EQ(evaluation.backward_comm->mse, 0);
  EXPECT_EQ(evaluation.backward_comm->kendall_tau, 1);
  EXPECT_EQ(evaluation.skipped_comm_samples, 3);
}

TEST(ModelEvaluationTest, WhatTheStoreHasNotIsAbsent) {
  const ModelEvaluation evaluation = EvaluateModel(DimModel(), {}, {});
  EXPECT_FALSE(evaluation.compute || evaluation.forward_comm || evaluation.backward_comm);
}

TEST(ModelEvaluationTest, OtherConditionsAreNamed) {
  const auto compute = SyntheticComputeRecords(3);
  EXPECT_THAT(ConditionMismatches(DimModel().info(), compute, {}),
              ElementsAre(HasSubstr("global batch size 1024, the store also has 512")));
}

}  // namespace
}  // namespace neuroshard
