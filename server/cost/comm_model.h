// The communication half of a cost model, for models whose compute and communication were made
// apart: networks of a sweep, or formulas of a fabric.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// Communication at one request's conditions. Immutable, stands on its own; all methods from any
// thread. The methods are those of CostModel; loads are in columns of pooled vectors in an
// all-to-all over all ranks, and the number of ranks is the conditions'.
class CommForConditions {
 public:
  virtual ~CommForConditions() = default;

  virtual CommLoad Load(const ShardFeatures& shard) const = 0;

  // [n, num_ranks] each, any n. In the inner loop of searches: asks for no memory once a thread has
  // called it.
  virtual void BackwardCosts(std::span<const float> loads, std::span<float> cost_ms) const = 0;
  virtual void ForwardCosts(std::span<const float> loads, std::span<const float> start_offsets_ms,
                            std::span<float> cost_ms) const = 0;

  // As CostModel::SetupOf.
  virtual CommSetup SetupOf(const ShardKinds& /*kinds*/) const { return {}; }

  // Empty where the model has no intervals.
  virtual std::vector<CommInterval> Intervals(std::span<const RankComm> /*ranks*/) const {
    return {};
  }
};

// The answers of a cost model by the communication that it was bound to; null: one rank, which has
// none.
void BackwardCostsOf(const CommForConditions* comm, int num_ranks, std::span<const float> loads,
                     std::span<float> cost_ms);
void ForwardCostsOf(const CommForConditions* comm, int num_ranks, std::span<const float> loads,
                    std::span<const float> start_offsets_ms, std::span<float> cost_ms);

// Immutable; all methods from any thread.
class CommModel {
 public:
  virtual ~CommModel() = default;

  // FAILED_PRECONDITION when these ranks cannot be priced; says which can. At least two ranks.
  virtual Status CheckConditions(const PricingConditions& conditions) const = 0;

  // Conditions that CheckConditions has accepted. Not null.
  virtual std::shared_ptr<const CommForConditions> ForConditions(
      const PricingConditions& conditions) const = 0;
};

}  // namespace neuroshard
