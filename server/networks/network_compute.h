// The compute half of a model of networks: kinds table_sum_mlp and universal_table_sum.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "server/cost/compute_model.h"
#include "server/cost/interval_rule.h"
#include "server/networks/mlp_network.h"
#include "server/networks/model_manifest.h"

namespace neuroshard {

// Returns a cost of at least 0. A value that is neither finite nor negative becomes the largest
// float, so that an overflowing network never looks cheap.
float FiniteCost(double value);

// Computes cost = head(S), where S is the sum of phi(z) over the shards; a shard without rows has
// phi 0. Every cost is at least 0 and finite (FiniteCost).
//
// Kind table_sum_mlp: phi and head are plain networks. Kind universal_table_sum: phi =
// exp(clamp(MLP(z), -20, 10)) and cost = linear . S + output . relu(hidden S + bias) + bias, where
// linear, output and the last bias are not negative, so the cost is positive and convex in S. The
// mean of the first members prices (pricing_members of the manifest), which is a network of the
// same kind with their phi side by side; intervals come from the differences between all members.
//
// Immutable, so thread-safe.
class NetworkCompute final : public ComputeModel {
 public:
  // `network` sums tables; `file` passed CheckNetworkTensors.
  NetworkCompute(const NetworkManifest& network, const TensorFile& file);

  int representation_width() const override { return static_cast<int>(num_pricing_ * width_); }
  bool splits() const { return num_outputs_ == 2; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override;
  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override;
  std::vector<ComputeInterval> Intervals(const PricingConditions& conditions,
                                         const ShardSets& ranks,
                                         std::span<const ComputeCost> costs) const override;

  // Returns the compute of a plausible shard. A value that is not finite means that the network is
  // useless.
  double TrialRun() const;

 private:
  struct Member {
    MlpNetwork phi;
    // Head. That of a universal network has two layers: relu(hidden S + bias) beside S itself (S is
    // not negative, so relu keeps it), then output and linear side by side.
    MlpNetwork head;
  };

  // Returns z of the shards, [shards, features].
  std::vector<float> Inputs(const PricingConditions& conditions,
                            std::span<const ShardFeatures> shards) const;
  // Computes phi of the first `members`, side by side: [shards, members * width_].
  void RepresentBy(std::size_t members, const PricingConditions& conditions,
                   std::span<const ShardFeatures> shards, std::span<float> phi) const;
  // Returns the cost of a row of outputs.
  ComputeCost CostOf(const double* values) const;

  // Fills a row of `row_width_` features of a shard, of which the network has `columns_`.
  std::function<void(const PricingConditions&, const ShardFeatures&, std::span<double>)> fill_row_;
  std::size_t row_width_;
  std::vector<std::size_t> columns_;
  Normalisation normalisation_;
  bool exponential_;   // phi
  std::size_t width_;  // of one member's phi
  std::size_t num_outputs_;
  std::size_t num_pricing_;
  std::vector<Member> members_;
  std::optional<IntervalRule> interval_rule_;
};

}  // namespace neuroshard
