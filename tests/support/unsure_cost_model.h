// A cost model that says how sure it is.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tests/support/fake_cost_model.h"

namespace neuroshard::testing {

// FakeCostModel, whose compute may be 10% less and 30% more, and whose communication is within 40%
// of a rank without cut rows or replicas, 60% of one with cut rows, 80% of one with replicas.
class UnsureCostModel final : public FakeCostModel {
 public:
  explicit UnsureCostModel(const ModelProperties& properties = {})
      : FakeCostModel(MakeInfo(properties)) {}

 protected:
  std::shared_ptr<const ComputeModel> MakeCompute() const override {
    return std::make_shared<const Compute>();
  }
  std::shared_ptr<const CommModel> MakeComm(const PricingConditions& conditions) const override {
    return std::make_shared<const Comm>(conditions);
  }

 private:
  class Compute final : public FakeCompute {
   public:
    std::vector<ComputeInterval> Intervals(const PricingConditions& /*conditions*/,
                                           const ShardSets& /*ranks*/,
                                           std::span<const ComputeCost> costs) const override {
      std::vector<ComputeInterval> intervals;
      for (const ComputeCost& cost : costs) {
        intervals.push_back({.total = {0.9 * cost.total_ms, 1.3 * cost.total_ms}});
      }
      return intervals;
    }
  };

  class Comm final : public FakeComm {
   public:
    using FakeComm::FakeComm;

    std::vector<CommInterval> Intervals(std::span<const RankComm> ranks) const override {
      std::vector<CommInterval> intervals;
      for (const RankComm& rank : ranks) {
        const double share =
            rank.load.kinds.replicas ? 0.8 : (rank.load.kinds.cut_rows ? 0.6 : 0.4);
        intervals.push_back({{(1 - share) * rank.forward_ms, (1 + share) * rank.forward_ms},
                             {(1 - share) * rank.backward_ms, (1 + share) * rank.backward_ms}});
      }
      return intervals;
    }
  };

  static CostModelInfo MakeInfo(const ModelProperties& properties) {
    CostModelInfo info = Named("unsure");
    info.properties = properties;
    info.properties.interval_coverage = 0.9;
    return info;
  }
};

}  // namespace neuroshard::testing
