// The distribution of ids (TorchRec's input_dist): ids, lengths of bags and weights of ids go to
// the ranks that hold the rows, before any lookup. Formulas price it unless a model has measured
// it.
#pragma once

#include <optional>

#include "common/domain/plan_cost.h"
#include "server/cost/comm_bandwidth.h"
#include "server/cost/interval_rule.h"
#include "server/cost/measured_rates.h"
#include "server/cost/model_info.h"
#include "server/cost/pricing_conditions.h"
#include "server/cost/shard_features.h"

namespace neuroshard {

// Bytes that a shard's rank receives of each rank's samples, its own included. Ranks have equal
// numbers of samples, so all of them send it the same.
struct InputBytes {
  double ids = 0;      // 8 bytes each
  double lengths = 0;  // 8 bytes per bag
  double weights = 0;  // 4 bytes per id of weighted tables

  double total() const { return ids + lengths + weights; }
  InputBytes& operator+=(const InputBytes& other) {
    ids += other.ids;
    lengths += other.lengths;
    weights += other.weights;
    return *this;
  }
};

// Returns the bytes of TorchRec 1.9.2's exchange of a KeyedJaggedTensor (dist_tensors of
// sparse/jagged_tensor.py):
// - whole rows: all ids of the table, once per column block, even where two blocks share a rank;
// - cut rows: the ids of the shard's rows, as if ids were spread evenly over rows, and the lengths
//   of all bags, since a bag may have ids of every block;
// - data_parallel: nothing, since each rank looks up its own.
InputBytes InputBytesOf(const ShardFeatures& shard, const PricingConditions& conditions);

// Returns the bytes of all ranks together, split as measurements split them.
InputDistBytes InputDistBytesOf(const ShardFeatures& shard, const PricingConditions& conditions);

// Prices the distribution of ids at the conditions of one request: a rank's time is the sum over
// its shards plus fixed_ms(). Ranks receive different amounts but send the same, so a rank that
// receives less than the mean is priced too low; the largest rank, which decides, is priced right.
// Immutable, so thread-safe.
class InputDist {
 public:
  // Returns none where the request does not say how its trainer distributes ids. A model's
  // measurements go before formulas where they have the ranks and hosts of the conditions. The
  // formulas:
  // - torchrec_input_dist: TorchRec 1.9.2's (_default_input_dist_comms of
  //   planner/estimator/estimator.py), ids alone, over one link, the same for cut rows as for whole
  //   ones;
  // - otherwise ours: an exchange over the slower of the two kinds of links, and passes over the
  //   bytes before and after it at the bandwidth of device memory.
  static std::optional<InputDist> Of(const PricingConditions& conditions,
                                     const ModelProperties& model);

  // From now on a shard takes `factor` times as long.
  void Scale(double factor) { scale_ *= factor; }

  // True if the distribution is part of a rank's cost; otherwise it overlaps with the batch before.
  bool exposed() const { return exposed_; }

  // True if measurements price it.
  bool measured() const { return rates_.has_value(); }

  // Time on every rank, with or without shards, so that it does not affect a search. It is 0 for
  // formulas and for a single rank.
  float fixed_ms() const;

  // Time of a shard, at least 0; 0 for a single rank.
  float Ms(const ShardFeatures& shard) const;

  // Interval of a rank's time, fixed_ms() included. None for a formula and for measurements without
  // intervals.
  std::optional<CostInterval> Interval(double rank_ms) const;

 private:
  InputDist(const PricingConditions& conditions, bool is_torchrec)
      : conditions_(conditions),
        is_torchrec_(is_torchrec),
        exposed_(conditions.pipeline_type == PipelineType::kNone),
        memory_bytes_per_ms_(conditions.bandwidths.device_memory_bytes_per_s / kMsPerSecond),
        topology_{static_cast<double>(conditions.num_ranks),
                  static_cast<double>(conditions.ranks_per_host),
                  conditions.bandwidths.intra_host_bytes_per_s / kMsPerSecond,
                  conditions.bandwidths.inter_host_bytes_per_s / kMsPerSecond} {}

  PricingConditions conditions_;
  bool is_torchrec_;
  bool exposed_;
  std::optional<InputDistRates> rates_;   // measured
  std::optional<IntervalRule> interval_;  // of rates_, at the conditions' ranks
  double memory_bytes_per_ms_;
  double scale_ = 1;
  CommTopology topology_;
};

}  // namespace neuroshard
