// The compute half of a universal model: kind universal_table_sum.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "server/cost/compute_model.h"
#include "server/cost/interval_rule.h"
#include "server/networks/mlp_network.h"
#include "server/networks/model_manifest.h"
#include "server/networks/normalisation.h"

namespace neuroshard {

// phi = exp(clamp(MLP(z), -20, 10)), cost = linear . S + output . relu(hidden S + bias) + bias,
// with S = sum of phi and no negative linear, output and last bias: positive, and convex in S. A
// shard without rows has phi 0. The mean of the first members prices (pricing_members of the
// manifest), which is a network of the same kind with their phi side by side; intervals come from
// the differences between all members. Immutable; any thread.
class UniversalCompute final : public ComputeModel {
 public:
  // `file` has passed CheckNetworkTensors with UniversalComputeTensors.
  UniversalCompute(const UniversalComputeManifest& manifest, const TensorFile& file);

  int representation_width() const override { return static_cast<int>(num_pricing_ * width_); }
  bool splits() const { return num_outputs_ == 2; }
  const std::optional<IntervalRule>& interval_rule() const { return interval_rule_; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override;
  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override;
  std::vector<ComputeInterval> Intervals(
      const PricingConditions& conditions,
      std::span<const std::vector<ShardFeatures>> shards_of_ranks,
      std::span<const ComputeCost> costs) const override;

  // The compute of one plausible shard, by the head. Not finite: the network is of no use.
  double TrialRun() const;

 private:
  struct Member {
    MlpNetwork phi;
    // relu(hidden S + bias) beside S itself (S is not negative, so relu keeps it), then output and
    // linear side by side: the formula above as a network of two layers.
    MlpNetwork head;
  };

  // z of the shards, [shards, features].
  std::vector<float> Inputs(const PricingConditions& conditions,
                            std::span<const ShardFeatures> shards) const;
  // phi of the first `members`, side by side: [shards, members * width_].
  void RepresentBy(std::size_t members, const PricingConditions& conditions,
                   std::span<const ShardFeatures> shards, std::span<float> phi) const;
  // Of a row of outputs.
  ComputeCost CostOf(const double* values) const;

  Normalisation normalisation_;
  std::vector<std::size_t> features_;  // positions in ComputeFeatureNames
  double cache_bytes_;
  std::size_t width_;  // of one member's phi
  std::size_t num_outputs_;
  std::size_t num_pricing_;
  std::vector<Member> members_;
  std::optional<IntervalRule> interval_rule_;
};

}  // namespace neuroshard
