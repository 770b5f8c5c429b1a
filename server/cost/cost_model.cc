#include "server/cost/cost_model.h"

#include <cassert>
#include <cstddef>

#include "server/cost/input_dist_compute.h"

namespace neuroshard {

BoundCostModel::BoundCostModel(PricingConditions conditions, ModelProperties properties,
                               std::vector<ShardingType> sharding_types,
                               std::shared_ptr<const ComputeModel> compute,
                               std::shared_ptr<const CommModel> comm)
    : conditions_(std::move(conditions)),
      properties_(std::move(properties)),
      sharding_types_(std::move(sharding_types)),
      input_dist_(InputDist::Of(
          conditions_,
          properties_.torchrec_input_dist ? InputDistRule::kTorchRec : InputDistRule::kOurs,
          properties_.measured_input_dist)),
      compute_(std::move(compute)),
      comm_(std::move(comm)) {
  if (input_dist_ && input_dist_->exposed()) {
    compute_ = WithInputDist(std::move(compute_), *input_dist_);
  }
}

void BoundCostModel::Represent(std::span<const ShardFeatures> shards, std::span<float> phi,
                               std::span<CommLoad> loads) const {
  assert(loads.size() == shards.size());
  compute_->Represent(conditions_, shards, phi);
  for (std::size_t i = 0; i < shards.size(); ++i) loads[i] = comm_->Load(shards[i]);
}

std::vector<ShardSetCost> BoundCostModel::CostsOfSets(
    std::span<const std::vector<ShardFeatures>> sets) const {
  std::vector<ShardFeatures> shards;
  std::size_t num_filled = 0;
  for (const std::vector<ShardFeatures>& set : sets) {
    shards.insert(shards.end(), set.begin(), set.end());
    num_filled += set.empty() ? 0 : 1;
  }
  std::vector<ShardSetCost> costs(sets.size());
  if (shards.empty()) return costs;

  const std::size_t width = static_cast<std::size_t>(representation_width());
  std::vector<float> phi(shards.size() * width);
  std::vector<CommLoad> loads(shards.size());
  Represent(shards, phi, loads);
  std::vector<float> sums(num_filled * width, 0.0F);
  std::size_t shard = 0;
  float* sum = sums.data();
  for (std::size_t s = 0; s < sets.size(); ++s) {
    if (sets[s].empty()) continue;
    for (std::size_t i = 0; i < sets[s].size(); ++i, ++shard) {
      for (std::size_t w = 0; w < width; ++w) sum[w] += phi[shard * width + w];
      costs[s].load += loads[shard];
    }
    sum += width;
  }
  std::vector<ComputeCost> compute(num_filled);
  ComputeCosts(sums, compute);
  std::size_t filled = 0;
  for (std::size_t s = 0; s < sets.size(); ++s) {
    if (!sets[s].empty()) costs[s].compute = compute[filled++];
  }
  return costs;
}

}  // namespace neuroshard
