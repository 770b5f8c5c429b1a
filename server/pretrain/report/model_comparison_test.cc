#include "server/pretrain/report/model_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/pretrain/testing/synthetic_records.h"
#include "tests/support/fake_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeCostModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// compute = sum of dims.
class DimCompute final : public ComputeModel {
 public:
  int representation_width() const override { return 1; }
  void Represent(const PricingConditions& /*conditions*/, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    for (std::size_t i = 0; i < shards.size(); ++i) phi[i] = static_cast<float>(shards[i].cols);
  }
  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    for (std::size_t i = 0; i < sums.size(); ++i) out[i].total_ms = sums[i];
  }
};

// Of rank r: its dim sum (+ its offset).
class DimComm final : public CommModel {
 public:
  CommLoad Load(const ShardFeatures& shard) const override {
    return {static_cast<float>(shard.cols), static_cast<float>(shard.cols)};
  }
  void Costs(CommStage stage, std::span<const float> dim_sums, std::span<const float> offsets,
             std::span<float> cost_ms) const override {
    for (std::size_t i = 0; i < dim_sums.size(); ++i) {
      cost_ms[i] = dim_sums[i] + (stage == CommStage::kForward ? offsets[i] : 0);
    }
  }
};

// Knows 1 and 2 ranks.
class DimModel final : public FakeCostModel {
 public:
  DimModel() : FakeCostModel(MakeInfo()) {}

 private:
  static CostModelInfo MakeInfo() {
    CostModelInfo info;
    info.coverage.num_devices = {1, 2};
    info.coverage.global_batch_size = 1024;
    info.coverage.optimizer = "sgd";
    return info;
  }
  std::shared_ptr<const ComputeModel> MakeCompute() const override {
    return std::make_shared<const DimCompute>();
  }
  std::shared_ptr<const CommModel> MakeComm(const PricingConditions&) const override {
    return std::make_shared<const DimComm>();
  }
};

TEST(ModelComparisonTest, AModelThatIsRightIsPerfectOnEverySample) {
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

  const ModelComparison comparison = CompareModel(DimModel(), compute, comm);
  auto metrics = comparison.Metrics();

  EXPECT_EQ(metrics["compute"].samples, 30);
  EXPECT_EQ(metrics["compute"].mse, 0);
  EXPECT_EQ(metrics["forward_comm"].samples, 10);
  EXPECT_NEAR(metrics["forward_comm"].mse, 0, 1e-6);
  EXPECT_EQ(metrics["backward_comm"].samples, 10);
  EXPECT_EQ(metrics["backward_comm"].mse, 0);
  EXPECT_EQ(metrics["backward_comm"].kendall_tau, 1);
  EXPECT_EQ(comparison.skipped_comm_samples, 3);
}

TEST(ModelComparisonTest, WhatTheStoreHasNotIsAbsent) {
  EXPECT_TRUE(CompareModel(DimModel(), {}, {}).Metrics().empty());
}

TEST(ModelComparisonTest, OtherConditionsAreNamed) {
  const auto compute = SyntheticComputeRecords(3);
  EXPECT_THAT(ConditionMismatches(DimModel().info(), compute, {}),
              ElementsAre(HasSubstr("global batch size 1024, the store also has 512")));
}

}  // namespace
}  // namespace neuroshard
