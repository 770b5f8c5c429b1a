// A cost model, and the model bound to the conditions of one request, which prices its plans.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "server/cost/comm_model.h"
#include "server/cost/compute_model.h"
#include "server/cost/input_dist.h"
#include "server/cost/model_info.h"
#include "server/cost/pricing_conditions.h"

namespace neuroshard {

// The cost of a set of shards, alone on a device, and what they load its communication with.
struct ShardSetCost {
  ComputeCost compute;
  CommLoad load;
};

// A cost model bound to pricing conditions: represents shards, sums and prices them, in batches, as
// searches need it. A value that stands on its own: the model that made it may be dropped.
// Immutable; all methods from any thread. Sizes are the caller's duty (checked by assertions);
// matrices are row-major.
class BoundCostModel {
 public:
  // `sharding_types`: what a search tries at these conditions where the caller does not say.
  // Neither half is null.
  BoundCostModel(PricingConditions conditions, ModelProperties properties,
                 std::vector<ShardingType> sharding_types,
                 std::shared_ptr<const ComputeModel> compute,
                 std::shared_ptr<const CommModel> comm);

  const PricingConditions& conditions() const { return conditions_; }
  int num_ranks() const { return conditions_.num_ranks; }
  const ModelProperties& properties() const { return properties_; }
  const std::vector<ShardingType>& sharding_types() const { return sharding_types_; }
  const std::shared_ptr<const ComputeModel>& compute() const { return compute_; }
  const CommModel& comm() const { return *comm_; }
  // None where the request does not ask for it. Where it is exposed, ComputeCost::total_ms has it.
  const std::optional<InputDist>& input_dist() const { return input_dist_; }

  // What a rank's compute is multiplied by: CostsOfSets and ComputeCosts know no ranks. 1 but where
  // devices differ in speed.
  float compute_scale(std::size_t rank) const {
    return conditions_.compute_scales.empty() ? 1.0F : conditions_.compute_scales[rank];
  }

  // Width of phi.
  int representation_width() const { return compute_->representation_width(); }

  // phi is [shards.size(), representation_width()], loads has shards.size() entries.
  void Represent(std::span<const ShardFeatures> shards, std::span<float> phi,
                 std::span<CommLoad> loads) const;

  // What each set of shards costs on a rank of its own with compute_scale 1, phi summed in the set's order; an empty set
  // costs 0.
  std::vector<ShardSetCost> CostsOfSets(std::span<const std::vector<ShardFeatures>> sets) const;

  // As ComputeModel and CommModel have them; ranks are num_ranks().
  void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out) const {
    compute_->Costs(sums, out);
  }
  std::vector<ComputeInterval> ComputeIntervals(
      std::span<const std::vector<ShardFeatures>> shards_of_ranks,
      std::span<const ComputeCost> costs) const {
    return compute_->Intervals(conditions_, shards_of_ranks, costs);
  }

 private:
  PricingConditions conditions_;
  ModelProperties properties_;
  std::vector<ShardingType> sharding_types_;
  std::optional<InputDist> input_dist_;
  std::shared_ptr<const ComputeModel> compute_;
  std::shared_ptr<const CommModel> comm_;
};

// Immutable once made; all methods from any thread.
class CostModel {
 public:
  explicit CostModel(CostModelInfo info) : info_(std::move(info)) {}
  virtual ~CostModel() = default;

  const CostModelInfo& info() const { return info_; }

  // What prices plans at these conditions. FAILED_PRECONDITION when they cannot be priced; names
  // what can.
  virtual StatusOr<BoundCostModel> Bind(const PricingConditions& conditions) const = 0;

 private:
  const CostModelInfo info_;
};

}  // namespace neuroshard
