// A cost model that says how sure it is.
#pragma once

#include <span>
#include <vector>

#include "tests/support/fake_cost_model.h"

namespace neuroshard::testing {

// FakeCostModel, whose compute may be 10% less and 30% more, and whose communication is within 40%
// of a rank without cut rows or replicas, 60% of one with cut rows, 80% of one with replicas.
class UnsureCostModel final : public FakeCostModel {
 public:
  UnsureCostModel() : FakeCostModel(MakeInfo()) {}

  std::vector<ComputeInterval> ComputeIntervals(
      const PricingConditions& /*conditions*/,
      std::span<const std::vector<ShardFeatures>> /*shards_of_ranks*/,
      std::span<const ComputeCost> costs) const override {
    std::vector<ComputeInterval> intervals;
    for (const ComputeCost& cost : costs) {
      intervals.push_back({.total = {0.9 * cost.total_ms, 1.3 * cost.total_ms}});
    }
    return intervals;
  }

  std::vector<CommInterval> CommIntervals(std::span<const RankComm> ranks) const override {
    std::vector<CommInterval> intervals;
    for (const RankComm& rank : ranks) {
      const double share = rank.load.kinds.replicas ? 0.8 : (rank.load.kinds.cut_rows ? 0.6 : 0.4);
      intervals.push_back({{(1 - share) * rank.forward_ms, (1 + share) * rank.forward_ms},
                           {(1 - share) * rank.backward_ms, (1 + share) * rank.backward_ms}});
    }
    return intervals;
  }

 private:
  static CostModelInfo MakeInfo() {
    CostModelInfo info;
    info.name = "unsure";
    info.version = 1;
    info.kind = "fake";
    info.interval_coverage = 0.9;
    return info;
  }
};

}  // namespace neuroshard::testing
