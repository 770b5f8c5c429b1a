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
//
// Ranks have kinds, 0 to num_kinds() - 1, where devices differ: each kind has a compute model of
// its own, communication is that of one model. phi then has the representations of all kinds side
// by side, so that sums need not know where they will be; what prices sums is told the kind of
// each, where there are several.
class BoundCostModel {
 public:
  // `sharding_types`: what a search tries at these conditions where the caller does not say.
  // Neither half is null.
  BoundCostModel(PricingConditions conditions, ModelProperties properties,
                 std::vector<ShardingType> sharding_types,
                 std::shared_ptr<const ComputeModel> compute,
                 std::shared_ptr<const CommModel> comm);

  // Communication of `comm`, compute of the ranks of kind k by `kinds[k]` (at least one, each of
  // one kind and bound to the conditions of `comm`). Of compute, a property holds where it does for
  // all kinds; convex_compute only where there is one, monotone_shard_costs nowhere.
  BoundCostModel(const BoundCostModel& comm, std::span<const BoundCostModel> kinds,
                 std::vector<int> kind_of_rank);

  const PricingConditions& conditions() const { return conditions_; }
  int num_ranks() const { return conditions_.num_ranks; }
  const ModelProperties& properties() const { return properties_; }
  const std::vector<ShardingType>& sharding_types() const { return sharding_types_; }
  // Of kind 0.
  const std::shared_ptr<const ComputeModel>& compute() const { return kinds_.front().compute; }
  const CommModel& comm() const { return *comm_; }
  // None where the request does not ask for it. Where it is exposed, ComputeCost::total_ms has it.
  const std::optional<InputDist>& input_dist(int kind = 0) const {
    return kinds_[static_cast<std::size_t>(kind)].input_dist;
  }

  // What every rank's distribution of ids takes besides, whatever the plan, in ms: the largest of
  // all kinds, since ranks wait for each other in the exchange. 0 where it is not exposed.
  float exposed_input_dist_fixed_ms() const;

  int num_kinds() const { return static_cast<int>(kinds_.size()); }
  int kind(std::size_t rank) const { return kinds_.size() == 1 ? 0 : kind_of_rank_[rank]; }
  // Of every rank, in order; empty where there is one kind.
  std::span<const int> kind_of_rank() const { return kind_of_rank_; }

  // What a rank's compute is multiplied by: CostsOfSets and ComputeCosts know no ranks. 1 but where
  // devices differ in speed.
  float compute_scale(std::size_t rank) const {
    return conditions_.compute_scales.empty() ? 1.0F : conditions_.compute_scales[rank];
  }

  // Width of phi.
  int representation_width() const { return width_; }

  // phi is [shards.size(), representation_width()], loads has shards.size() entries.
  void Represent(std::span<const ShardFeatures> shards, std::span<float> phi,
                 std::span<CommLoad> loads) const;

  // What each set of shards costs on a rank of its own with compute_scale 1, phi summed in the
  // set's order; an empty set costs 0. `kinds` here and below: one of each set, sum or rank; they
  // may be left out where there is one kind.
  std::vector<ShardSetCost> CostsOfSets(std::span<const std::vector<ShardFeatures>> sets,
                                        std::span<const int> kinds = {}) const;

  // As ComputeModel and CommModel have them; ranks are num_ranks(). Intervals are empty where one
  // of the kinds has none.
  void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out,
                    std::span<const int> kinds = {}) const {
    if (kinds_.size() > 1) return ComputeCostsByKind(sums, out, kinds);
    kinds_.front().compute->Costs(sums, out);
  }
  std::vector<ComputeInterval> ComputeIntervals(
      std::span<const std::vector<ShardFeatures>> shards_of_ranks,
      std::span<const ComputeCost> costs, std::span<const int> kinds = {}) const;

 private:
  struct Kind {
    std::optional<InputDist> input_dist;
    std::shared_ptr<const ComputeModel> compute;
  };

  void ComputeCostsByKind(std::span<const float> sums, std::span<ComputeCost> out,
                          std::span<const int> kinds) const;

  PricingConditions conditions_;
  ModelProperties properties_;
  std::vector<ShardingType> sharding_types_;
  std::vector<Kind> kinds_;        // at least one
  std::vector<int> kind_of_rank_;  // empty where there is one kind
  int width_ = 0;
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

// The compute of ranks alone, bound to the conditions of a request of any number of ranks; its
// communication costs nothing. Errors as of Bind, for one rank.
StatusOr<BoundCostModel> BindCompute(const CostModel& model, const PricingConditions& conditions);

}  // namespace neuroshard
