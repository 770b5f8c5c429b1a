#include "server/cost/input_dist_compute.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace neuroshard {
namespace {

class ComputeWithInputDist final : public ComputeModel {
 public:
  ComputeWithInputDist(std::shared_ptr<const ComputeModel> compute, const InputDist& input_dist)
      : compute_(std::move(compute)), input_dist_(input_dist) {}

  int representation_width() const override { return compute_->representation_width() + 1; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    const std::size_t width = Width();
    assert(phi.size() == shards.size() * (width + 1));
    std::vector<float> base(shards.size() * width);
    compute_->Represent(conditions, shards, base);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      float* const row = phi.data() + i * (width + 1);
      std::copy_n(base.data() + i * width, width, row);
      row[width] = input_dist_.Ms(shards[i]);
    }
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    const std::size_t width = Width();
    assert(sums.size() == out.size() * (width + 1));
    std::vector<float> base(out.size() * width);
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::copy_n(sums.data() + i * (width + 1), width, base.data() + i * width);
    }
    compute_->Costs(base, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i].total_ms += sums[i * (width + 1) + width];
    }
  }

  std::vector<ComputeInterval> Intervals(
      const PricingConditions& conditions,
      std::span<const std::vector<ShardFeatures>> shards_of_ranks,
      std::span<const ComputeCost> costs) const override {
    return compute_->Intervals(conditions, shards_of_ranks, costs);
  }

 private:
  std::size_t Width() const { return static_cast<std::size_t>(compute_->representation_width()); }

  const std::shared_ptr<const ComputeModel> compute_;
  const InputDist input_dist_;
};

}  // namespace

std::shared_ptr<const ComputeModel> WithInputDist(std::shared_ptr<const ComputeModel> compute,
                                                  const InputDist& input_dist) {
  return std::make_shared<const ComputeWithInputDist>(std::move(compute), input_dist);
}

}  // namespace neuroshard
