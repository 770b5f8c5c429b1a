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

// Cost of a set of shards that is alone on a device, and its communication load.
struct ShardSetCost {
  ComputeCost compute;
  CommLoad load;
};

// A cost model bound to pricing conditions. It represents, sums and prices shards in batches, as
// searches need it, and keeps alive what it needs, so the model that made it may be dropped.
// Immutable, so thread-safe. Matrices are row-major; callers ensure the sizes of spans (assertions
// check them).
//
// Where devices differ, ranks have kinds, 0 to num_kinds() - 1, each with a compute model of its
// own; one model prices communication. phi then has the representations of all kinds side by side,
// so a sum does not depend on the rank it will be on; pricing a sum takes the kind of its rank.
class BoundCostModel {
 public:
  // `sharding_types` are what a search tries at these conditions unless the caller says otherwise.
  // `compute` and `comm` are not null. Under Optimizer::kNone the forward pass alone is priced, for
  // which the model has to split compute.
  BoundCostModel(PricingConditions conditions, ModelProperties properties,
                 std::vector<ShardingType> sharding_types,
                 std::shared_ptr<const ComputeModel> compute,
                 std::shared_ptr<const CommModel> comm);

  // Combines the communication of `comm` with the compute of `kinds[k]` for ranks of kind k (at
  // least one; each has one kind and is bound to the conditions of `comm`). A property of compute
  // holds where it does for all kinds; convex_compute only where there is one kind,
  // monotone_shard_costs never.
  BoundCostModel(const BoundCostModel& comm, std::span<const BoundCostModel> kinds,
                 std::vector<int> kind_of_rank);

  const PricingConditions& conditions() const { return conditions_; }
  int num_ranks() const { return conditions_.num_ranks; }
  const ModelProperties& properties() const { return properties_; }
  const std::vector<ShardingType>& sharding_types() const { return sharding_types_; }
  // Compute model of kind 0.
  const std::shared_ptr<const ComputeModel>& compute() const { return kinds_.front().compute; }
  const CommModel& comm() const { return *comm_; }
  // Distribution of ids of a kind; none where the request does not ask for it. Where it is exposed,
  // ComputeCost::total_ms includes it.
  const std::optional<InputDist>& input_dist(int kind = 0) const {
    return kinds_[static_cast<std::size_t>(kind)].input_dist;
  }

  // Whether a plan pays for each exchange that it has (ShardKinds::exchanges).
  bool prices_exchanges() const {
    return properties_.measured_steps.has_value() && num_ranks() > 1;
  }

  // Time that every rank takes beside its stages, whatever the plan, in ms: what is fixed of the
  // exposed distribution of ids, the largest of all kinds, since ranks wait for each other in the
  // exchange. It is 0 where the distribution is not exposed.
  float fixed_rank_ms() const;

  int num_kinds() const { return static_cast<int>(kinds_.size()); }
  int kind(std::size_t rank) const { return kinds_.size() == 1 ? 0 : kind_of_rank_[rank]; }
  // Kinds by rank; empty where there is one kind.
  std::span<const int> kind_of_rank() const { return kind_of_rank_; }

  // Factor of a rank's compute, 1 unless devices differ in speed. CostsOfSets and ComputeCosts know
  // no ranks and leave it to the caller.
  float compute_scale(std::size_t rank) const {
    return conditions_.compute_scales.empty() ? 1.0F : conditions_.compute_scales[rank];
  }

  // Width of phi.
  int representation_width() const { return width_; }

  // Represents shards: `phi` is [shards.size(), representation_width()], `loads` has shards.size()
  // entries.
  void Represent(std::span<const ShardFeatures> shards, std::span<float> phi,
                 std::span<CommLoad> loads) const;

  // Returns what each set of shards costs on a rank of its own with compute_scale 1; an empty set
  // costs 0. phi is summed in the order of the set. `kinds`, here and below, has the kind of each
  // set, sum or rank and may be empty where there is one kind.
  std::vector<ShardSetCost> CostsOfSets(const ShardSets& sets,
                                        std::span<const int> kinds = {}) const;
  // Returns what sets of numbers of shards cost, whose `phi` and `loads` are from Represent.
  std::vector<ShardSetCost> CostsOfSets(std::span<const float> phi, std::span<const CommLoad> loads,
                                        const std::vector<std::vector<int>>& sets,
                                        std::span<const int> kinds) const;

  // ComputeModel's Costs and Intervals by kind. Intervals are empty where one of the kinds has none;
  // that of an empty set is [0, 0].
  void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out,
                    std::span<const int> kinds = {}) const {
    if (kinds_.size() > 1) return ComputeCostsByKind(sums, out, kinds);
    kinds_.front().compute->Costs(sums, out);
  }
  std::vector<ComputeInterval> ComputeIntervals(const ShardSets& sets,
                                                std::span<const ComputeCost> costs,
                                                std::span<const int> kinds = {}) const;

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

// Returns the model of a single rank, which communicates with nobody: no loads, costs of 0,
// intervals of [0, 0].
std::shared_ptr<const CommModel> CommOfOneRank();

// A cost model, as a repository serves it. Immutable, so thread-safe.
class CostModel {
 public:
  explicit CostModel(CostModelInfo info) : info_(std::move(info)) {}
  virtual ~CostModel() = default;

  const CostModelInfo& info() const { return info_; }

  // Returns the model of plans at these conditions, or FAILED_PRECONDITION naming the conditions
  // that it can price.
  virtual StatusOr<BoundCostModel> Bind(const PricingConditions& conditions) const = 0;

 private:
  const CostModelInfo info_;
};

// Binds the compute alone, for a request of any number of ranks; communication costs nothing.
// Errors are those of Bind for one rank.
StatusOr<BoundCostModel> BindCompute(const CostModel& model, const PricingConditions& conditions);

}  // namespace neuroshard
