// The input side of a sharded embedding: ids, lengths of bags and weights of ids go to the ranks
// that hold the rows, before any lookup. Formulas, but where a model has measurements of it.
#pragma once

#include <optional>

#include "common/domain/plan_cost.h"
#include "server/cost/comm_bandwidth.h"
#include "server/cost/interval_rule.h"
#include "server/cost/measured_input_dist.h"
#include "server/cost/pricing_conditions.h"
#include "server/cost/shard_features.h"

namespace neuroshard {

// What the rank of a shard receives for it of each rank's samples, its own among them, in bytes.
// Every rank has as many samples as any other, so that all of them send it the same.
struct InputBytes {
  double ids = 0;      // 8 bytes each
  double lengths = 0;  // 8 bytes a bag
  double weights = 0;  // 4 bytes an id, of weighted tables

  double total() const { return ids + lengths + weights; }
  InputBytes& operator+=(const InputBytes& other) {
    ids += other.ids;
    lengths += other.lengths;
    weights += other.weights;
    return *this;
  }
};

// As TorchRec 1.9.2 exchanges a KeyedJaggedTensor (dist_tensors of sparse/jagged_tensor.py):
// - whole rows: all ids of the table, once a column block, though two be on one rank;
// - cut rows: the ids of the shard's rows, which are taken to be looked up alike, and the lengths
//   of all bags, since a bag may have ids of every block;
// - data_parallel: nothing, each rank looks up its own.
InputBytes InputBytesOf(const ShardFeatures& shard, const PricingConditions& conditions);

// Whose formula.
enum class InputDistRule {
  // The exchange over the slower of the two kinds of links, and the passes over the bytes before
  // and after it at the bandwidth of device memory.
  kOurs,
  // TorchRec 1.9.2's (_default_input_dist_comms of planner/estimator/estimator.py): ids alone, of
  // cut rows as of whole ones, over one link.
  kTorchRec,
};

// The same of all ranks together, as measurements tell it apart.
InputDistBytes InputDistBytesOf(const ShardFeatures& shard, const PricingConditions& conditions);

// Prices the distribution of ids at the conditions of one request: a rank's time is the sum of its
// shards' and fixed_ms(). What ranks receive differs, what they send does not: a rank that receives
// less than the mean sends longer than is counted here; the largest rank is counted right.
// Immutable; all methods from any thread.
class InputDist {
 public:
  // None where the request does not say how its trainer distributes ids. `measured` goes before
  // the rule where it was measured at the conditions' ranks and hosts; `interval` is of its rates.
  static std::optional<InputDist> Of(const PricingConditions& conditions, InputDistRule rule,
                                     const std::optional<MeasuredInputDist>& measured = {},
                                     const std::optional<IntervalManifest>& interval = {});

  // Whether it is part of a rank's cost; otherwise it runs beside the batch before.
  bool exposed() const { return exposed_; }

  // Whether measurements price it.
  bool measured() const { return rates_.has_value(); }

  // Of every rank, with shards or without, whatever the plan: no part of what searches compare. 0
  // for formulas and for a rank alone.
  float fixed_ms() const;

  // At least 0; 0 for a rank alone.
  float Ms(const ShardFeatures& shard) const;

  // Of a rank's time, fixed_ms() included. None of a formula, and where the measurements have none.
  std::optional<CostInterval> Interval(double rank_ms) const;

 private:
  InputDist(const PricingConditions& conditions, InputDistRule rule);

  PricingConditions conditions_;
  InputDistRule rule_;
  bool exposed_;
  std::optional<InputDistRates> rates_;   // measured
  std::optional<IntervalRule> interval_;  // of rates_, at the conditions' ranks
  double memory_bytes_per_ms_;
  CommTopology topology_;
};

}  // namespace neuroshard
