// A cost model with costs that a person can work out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "server/cost/cost_model.h"
#include "server/cost/volume_equivalent.h"

namespace neuroshard::testing {

// compute of a rank: sum over its shards of cols * pooling_factor / 100 ms, plus 1 ms.
class FakeCompute : public ComputeModel {
 public:
  int representation_width() const override { return 1; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      phi[i] = static_cast<float>(static_cast<double>(shards[i].cols) *
                                  ShardPoolingFactor(conditions, shards[i]));
    }
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    for (std::size_t i = 0; i < sums.size(); ++i) out[i] = {.total_ms = 1.0F + sums[i] / 100.0F};
  }
};

// Load of a shard: VolumeEquivalent, its columns unless replicated. Backward communication of a
// rank: the largest dim sum / 1000 ms; forward: the same plus half of the largest start offset
// minus its own.
class FakeComm : public CommModel {
 public:
  explicit FakeComm(const PricingConditions& conditions) : conditions_(conditions) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    return VolumeEquivalent(conditions_, shard);
  }

  void Costs(CommStage stage, std::span<const float> dim_sums,
             std::span<const float> start_offsets_ms, std::span<float> cost_ms) const override {
    const auto ranks = static_cast<std::size_t>(conditions_.num_ranks);
    for (std::size_t row = 0; row < dim_sums.size(); row += ranks) {
      const auto sums = dim_sums.subspan(row, ranks);
      const float largest = *std::max_element(sums.begin(), sums.end());
      std::fill_n(cost_ms.begin() + static_cast<std::ptrdiff_t>(row), ranks, largest / 1000.0F);
      if (stage == CommStage::kBackward) continue;
      const auto offsets = start_offsets_ms.subspan(row, ranks);
      const float last = *std::max_element(offsets.begin(), offsets.end());
      for (std::size_t r = 0; r < ranks; ++r) cost_ms[row + r] += (last - offsets[r]) / 2;
    }
  }

 private:
  const PricingConditions conditions_;
};

// FakeCompute and FakeComm, or others in their place.
class FakeCostModel : public CostModel {
 public:
  FakeCostModel() : FakeCostModel(Named("fake")) {}
  // info.coverage.num_devices empty: any number of ranks.
  explicit FakeCostModel(CostModelInfo info) : CostModel(std::move(info)) {}

  StatusOr<BoundCostModel> Bind(const PricingConditions& conditions) const override {
    const std::vector<int>& counts = info().coverage.num_devices;
    if (!counts.empty() &&
        std::find(counts.begin(), counts.end(), conditions.num_ranks) == counts.end()) {
      return FailedPrecondition("cost model {} prices other rank counts than {}", info().name,
                                conditions.num_ranks);
    }
    return BoundCostModel(conditions, info().properties, info().coverage.sharding_types,
                          MakeCompute(), MakeComm(conditions));
  }

  static CostModelInfo Named(std::string name) {
    CostModelInfo info;
    info.name = std::move(name);
    info.version = 1;
    info.kind = "fake";
    return info;
  }

 protected:
  virtual std::shared_ptr<const ComputeModel> MakeCompute() const {
    return std::make_shared<const FakeCompute>();
  }
  virtual std::shared_ptr<const CommModel> MakeComm(const PricingConditions& conditions) const {
    return std::make_shared<const FakeComm>(conditions);
  }
};

// The model at the request's conditions, which it can price.
inline BoundCostModel BoundTo(const PlanRequest& request, const CostModel& model) {
  return model.Bind(ConditionsOf(request)).value();
}

// The conditions of so many ranks.
inline BoundCostModel BoundToRanks(int num_ranks, const CostModel& model) {
  PricingConditions conditions;
  conditions.num_ranks = num_ranks;
  return model.Bind(conditions).value();
}

}  // namespace neuroshard::testing
