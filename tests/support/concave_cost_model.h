// A cost model that behaves like the real ones without being one: not additive, ranks influence
// each other, exact to the bit on every machine that adds floats in order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "tests/support/fake_cost_model.h"

namespace neuroshard::testing {

// phi: a few random positive weights on dim, lookups, log of rows and share of rare ids. head: a
// concave sum over phi's entries plus a constant, so that head(0) > 0, tables share overheads and
// two halves cost more than the whole. Rows of a batch do not influence each other.
class ConcaveCompute final : public ComputeModel {
 public:
  static constexpr int kWidth = 6;

  ConcaveCompute(std::uint64_t seed, bool splits) : splits_(splits) {
    Random random(seed);
    for (float& weight : weights_) weight = static_cast<float>(0.1 + random.UniformReal());
    for (float& weight : head_) weight = static_cast<float>(0.05 + 0.2 * random.UniformReal());
  }

  int representation_width() const override { return kWidth; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const ShardFeatures& shard = shards[i];
      const float inputs[] = {
          0.01F * static_cast<float>(shard.cols),
          0.001F * static_cast<float>(static_cast<double>(shard.cols) *
                                      ShardPoolingFactor(conditions, shard)),
          0.05F * static_cast<float>(std::log2(1.0 + static_cast<double>(shard.rows))),
          0.1F * static_cast<float>(shard.reuse_histogram[0])};
      for (std::size_t w = 0; w < kWidth; ++w) {
        float sum = 0;
        for (std::size_t k = 0; k < 4; ++k) sum += inputs[k] * weights_[w * 4 + k];
        phi[i * kWidth + w] = sum;
      }
    }
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      float cost = 0.3F;
      for (std::size_t w = 0; w < kWidth; ++w) {
        const float sum = sums[i * kWidth + w];
        cost += head_[w] * (w % 2 == 0 ? std::sqrt(sum) : sum);
      }
      out[i].total_ms = cost;
      if (splits_) {
        out[i].forward_ms = 0.25F * cost;
        out[i].backward_ms = 0.75F * cost;
      }
    }
  }

 private:
  const bool splits_;
  float weights_[kWidth * 4];
  float head_[kWidth];
};

// Each rank's own bytes, the largest rank's, and (forward) a part of the wait for the last rank;
// each further collective a constant.
class ConcaveComm final : public CommModel {
 public:
  explicit ConcaveComm(const PricingConditions& conditions) : conditions_(conditions) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    return VolumeEquivalent(conditions_, shard);
  }

  CommSetup SetupOf(const ShardKinds& kinds) const override {
    if (kinds == ShardKinds()) return {};
    const auto ms = [](bool has, float idle_ms) { return has ? idle_ms : 0.0F; };
    return {ms(kinds.cut_rows, 0.06F) - ms(!kinds.whole_rows, 0.04F),
            ms(kinds.cut_rows, 0.07F) + ms(kinds.replicas, 0.09F) - ms(!kinds.whole_rows, 0.05F)};
  }

  void Costs(CommStage stage, std::span<const float> dim_sums,
             std::span<const float> start_offsets_ms, std::span<float> cost_ms) const override {
    const std::size_t ranks = static_cast<std::size_t>(conditions_.num_ranks);
    for (std::size_t begin = 0; begin < dim_sums.size(); begin += ranks) {
      const auto row = dim_sums.subspan(begin, ranks);
      if (stage == CommStage::kForward) {
        const auto offsets = start_offsets_ms.subspan(begin, ranks);
        const float last = *std::max_element(offsets.begin(), offsets.end());
        for (std::size_t r = 0; r < ranks; ++r) {
          cost_ms[begin + r] = 0.04F + 0.003F * row[r] + 0.8F * (last - offsets[r]);
        }
        continue;
      }
      const float largest = *std::max_element(row.begin(), row.end());
      for (std::size_t r = 0; r < ranks; ++r) {
        cost_ms[begin + r] = 0.05F + 0.002F * row[r] + 0.001F * largest;
      }
    }
  }

 private:
  const PricingConditions conditions_;
};

// Rates of steps with which exchanges are dear beside what else ConcaveCostModel charges.
inline MeasuredSteps ConcaveSteps() {
  return {{{.num_ranks = 4,
            .compute_scale = 1.25,
            .comm_scale = 1.5,
            .exchange = {.whole_rows_ms = 0.5, .cut_rows_ms = 0.75, .replicas_ms = 0.25},
            .input_dist = {.whole_rows_ms = 0.25, .cut_rows_ms = 0.5}}}};
}

class ConcaveCostModel final : public FakeCostModel {
 public:
  explicit ConcaveCostModel(std::uint64_t seed = 0, ModelProperties properties = {},
                            std::vector<ShardingType> types = ModelCoverage().sharding_types)
      : FakeCostModel(MakeInfo(properties, std::move(types))), seed_(seed) {}

 protected:
  std::shared_ptr<const ComputeModel> MakeCompute() const override {
    return std::make_shared<const ConcaveCompute>(seed_, info().properties.splits_compute);
  }
  std::shared_ptr<const CommModel> MakeComm(const PricingConditions& conditions) const override {
    return std::make_shared<const ConcaveComm>(conditions);
  }

 private:
  static CostModelInfo MakeInfo(ModelProperties properties, std::vector<ShardingType> types) {
    CostModelInfo info = Named("concave");
    info.properties = properties;
    info.coverage.sharding_types = std::move(types);
    return info;
  }

  const std::uint64_t seed_;
};

}  // namespace neuroshard::testing
