// Prices of a placement in each of a sample of batches, kept up to date while shards move.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "common/base/stop_signal.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/evaluate/price_plan.h"

namespace neuroshard {

// One shard of a plan.
struct BatchedShard {
  std::size_t table = 0;  // entry of the plan
  std::size_t shard = 0;  // of the table
  std::size_t shape = 0;  // what its prices are of
  std::size_t rank = 0;
  bool movable = false;  // alone on its rank; cut rows and replicas stay
};

// Shard `moved` goes to rank `to`, and `back`, if any, comes from there.
struct BatchMove {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t moved = kNone;
  std::size_t back = kNone;
  std::size_t to = 0;
};

// The time of every rank in every batch. With more batches than fit into kMaxFloats of
// representations, as many as do, evenly spaced; none where not even one does. An exact price takes
// O(batches x (ranks + width)), an estimate O(batches). For one thread.
class BatchPrices {
 public:
  static constexpr std::size_t kMaxFloats = std::size_t{1} << 23;

  // Request and model must outlive it; `plan` is of the request's tables, in any order. `stop` is
  // polled once a batch; where it says stop there are no batches.
  BatchPrices(const PlanRequest& request, const Plan& plan, const BoundCostModel& model,
              const StopSignal& stop);

  std::size_t num_batches() const { return num_batches_; }
  // Whether they are all of the request's.
  bool has_all_batches() const { return has_all_batches_; }
  const std::vector<BatchedShard>& shards() const { return shards_; }
  const std::vector<std::size_t>& held(std::size_t rank) const { return held_[rank]; }

  // Mean over the batches of the costliest rank.
  double mean_ms() const { return mean_ms_; }
  // In how many batches it is the costliest rank.
  const std::vector<int>& batches_led() const { return batches_led_; }

  // The mean after the move, if shards cost what they cost alone, in the proportion of what their
  // rank costs to the sum of its shards; on an empty rank what they cost alone. That is the cost on
  // a rank of kind 0 with compute_scale 1 (ShardPricer), whatever the rank. Exact where compute
  // adds up, communication is separable and ranks are of one kind and speed. With several, a rank
  // that holds shards has its kind in the proportion, exactly so where its kind costs a multiple of
  // kind 0; an empty one has not. The order in which moves are tried, no price: Apply has that.
  double Estimate(const BatchMove& move) const;
  // Carries the move out and prices it. Returns the move that takes it back.
  BatchMove Apply(const BatchMove& move);

 private:
  void ReadShards(const PlanRequest& request, const Plan& plan);
  // Whether it came to the end.
  bool Represent(const PlanRequest& request, const Plan& plan, const StopSignal& stop);
  void Add(std::size_t shard, double sign);
  void PriceRank(std::size_t rank);
  void PriceAll();
  void SetLeaders();

  const BoundCostModel& model_;
  const std::size_t num_ranks_;
  const std::size_t width_;
  std::vector<int> table_of_;  // by entry of the plan
  std::size_t num_batches_ = 0;
  bool has_all_batches_ = false;
  std::size_t num_shapes_ = 0;
  std::vector<BatchedShard> shards_;
  std::vector<std::vector<std::size_t>> held_;  // by rank, ascending
  // [shapes, batches], phi also [.., width].
  std::vector<float> phi_;
  std::vector<CommLoad> loads_;
  std::vector<double> alone_ms_;
  // [ranks, batches], sums also [.., width].
  std::vector<double> sums_;
  std::vector<double> sum_alone_ms_;
  std::vector<ShardKinds> kinds_;  // by batch; moves change none
  // [batches, ranks].
  std::vector<float> compute_ms_;
  std::vector<float> forward_loads_;
  std::vector<float> backward_loads_;
  PlacementPrices prices_;
  std::vector<double> total_ms_;
  // By batch, the three costliest ranks: of any two that a move touches, one is left.
  struct Leader {
    std::size_t rank = 0;
    double ms = 0;
  };
  std::vector<std::array<Leader, 3>> leaders_;
  std::vector<int> batches_led_;
  double mean_ms_ = 0;
  // Scratch of PriceRank, kept for its memory.
  std::vector<float> rank_sums_;
  std::vector<ComputeCost> rank_costs_;
};

}  // namespace neuroshard
