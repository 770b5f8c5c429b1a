// A cost model with costs that a person can work out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "server/cost/cost_model.h"
#include "server/cost/volume_equivalent.h"

namespace neuroshard::testing {

// A shard's communication load: VolumeEquivalent, its columns unless replicated. compute of a rank:
// sum over its shards of cols * pooling_factor / 100 ms, plus 1 ms. Backward communication of a
// rank: the largest dim sum / 1000 ms; forward: the same plus half of the largest start offset
// minus its own.
class FakeCostModel : public CostModel {
 public:
  FakeCostModel() {
    info_.name = "fake";
    info_.version = 1;
    info_.kind = "fake";
  }
  // info.num_devices empty: any number of ranks.
  explicit FakeCostModel(CostModelInfo info) : info_(std::move(info)) {}

  const CostModelInfo& info() const override { return info_; }

  Status CheckConditions(const PricingConditions& conditions) const override {
    const int num_ranks = conditions.num_ranks;
    if (info_.num_devices.empty()) return absl::OkStatus();
    for (const int count : info_.num_devices) {
      if (count == num_ranks) return absl::OkStatus();
    }
    return FailedPrecondition("cost model {} prices other rank counts than {}", info_.name,
                              num_ranks);
  }

  int representation_width() const override { return 1; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> out, std::span<CommLoad> loads) const override {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      out[i] = static_cast<float>(static_cast<double>(shards[i].cols) *
                                  ShardPoolingFactor(conditions, shards[i]));
      loads[i] = VolumeEquivalent(conditions, shards[i]);
    }
  }

  void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out) const override {
    for (std::size_t i = 0; i < sums.size(); ++i) out[i] = {.total_ms = 1.0F + sums[i] / 100.0F};
  }

  void BackwardCommCosts(int num_ranks, std::span<const float> dim_sums,
                         std::span<float> cost_ms) const override {
    const auto ranks = static_cast<std::size_t>(num_ranks);
    for (std::size_t row = 0; row < dim_sums.size(); row += ranks) {
      const auto sums = dim_sums.subspan(row, ranks);
      const float largest = *std::max_element(sums.begin(), sums.end());
      std::fill_n(cost_ms.begin() + static_cast<std::ptrdiff_t>(row), ranks, largest / 1000.0F);
    }
  }

  void ForwardCommCosts(int num_ranks, std::span<const float> dim_sums,
                        std::span<const float> start_offsets_ms,
                        std::span<float> cost_ms) const override {
    BackwardCommCosts(num_ranks, dim_sums, cost_ms);
    const auto ranks = static_cast<std::size_t>(num_ranks);
    for (std::size_t row = 0; row < dim_sums.size(); row += ranks) {
      const auto offsets = start_offsets_ms.subspan(row, ranks);
      const float last = *std::max_element(offsets.begin(), offsets.end());
      for (std::size_t r = 0; r < ranks; ++r) cost_ms[row + r] += (last - offsets[r]) / 2;
    }
  }

 private:
  CostModelInfo info_;
};

}  // namespace neuroshard::testing
