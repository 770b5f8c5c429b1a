// CostModel: compute in sum form, communication per placement, everything in batches, as searches
// need it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan_cost.h"
#include "common/domain/reuse_histogram.h"
#include "common/domain/shard_layout.h"
#include "common/domain/vocabulary.h"
#include "server/cost/pricing_conditions.h"

namespace neuroshard {

// One shard as a model sees it.
struct ShardFeatures {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t table_rows = 0;  // rows / table_rows of the ids go to the shard
  ShardLayout layout;
  double pooling_factor = 1.0;  // of the table
  ReuseHistogram reuse_histogram{};
  DataType weight_dtype = DataType::kFp32;
  PoolingMode pooling_mode = PoolingMode::kSum;
  bool weighted = false;
  int vectors_per_sample = 1;  // one a feature that shares the table
};

inline constexpr std::string_view kAnalyticKind = "analytic";

// Conditions that a model takes into account: batch sizes in a range, words of the vocabularies.
// Empty: it was measured at the one condition that CostModelInfo states, or at one that it does not
// state.
struct ConditionRanges {
  std::int64_t min_batch_size = 0;
  std::int64_t max_batch_size = 0;  // 0: empty
  std::vector<std::string> weight_dtypes;
  std::vector<std::string> optimizers;
  int min_ranks = 0;
  int max_ranks = 0;  // 0: empty
  int max_hosts = 0;  // 0: not stated

  bool operator==(const ConditionRanges&) const = default;
};

// Drift of a stage: measurements made after a model, beside its predictions.
struct StageDrift {
  std::string stage;  // "compute", "forward_comm", ...
  std::int64_t samples = 0;
  double median_ratio = 1;  // measured / predicted
  double p10_ratio = 1;
  double p90_ratio = 1;
  std::string since;  // of the measurements, ISO 8601
  std::string until;

  bool operator==(const StageDrift&) const = default;
};

// Identity and coverage of a model: what it is and what it was measured at. Zero or empty: not
// stated.
struct CostModelInfo {
  std::string name;
  int version = 0;
  std::string kind;  // "neural"; kAnalyticKind: formulas, nothing was measured
  MeasuredWith measured_with;
  std::int64_t global_batch_size = 0;
  std::string weight_dtype;
  std::string optimizer;
  ConditionRanges ranges;
  std::vector<std::string> features;
  std::vector<int> num_devices;  // rank counts it can price communication for, ascending
  int max_ranks = 0;             // any rank count up to this besides; 0: num_devices are all
  std::map<std::string, std::string> details;  // flattened metrics and provenance
  bool splits_compute = false;                 // tells forward from backward compute
  // What the model was made for, and what a search tries where the caller does not say; of a bound
  // model, at its conditions.
  std::vector<ShardingType> sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
  // Types whose collectives it was measured on, whether a search tries them unasked or not.
  std::vector<ShardingType> measured_types;
  // head is linear without a constant: a rank costs the sum of what its shards cost alone.
  bool additive_compute = false;
  // head is convex: by Jensen's inequality, the mean over ranks of head(sum) is at least head of
  // the mean sum.
  bool convex_compute = false;
  // A rank's communication costs the sum of what its shards' loads cost alone; other ranks and
  // start offsets do not matter.
  bool separable_comm = false;
  // What a shard alone costs, compute and communication together:
  // - is the same in table_wise, column_wise and table_column_wise, and for all row blocks of a
  //   table;
  // - per column does not rise with its columns;
  // - with rows over more holders neither rises for one holder nor falls for all of them together.
  // So a few shards bound all ways of cutting a table (server/evaluate/README.md).
  bool monotone_shard_costs = false;
  // Communication is priced by the published figures of the fabric of this name and was not
  // measured; empty: it was, or there is none.
  std::string comm_fabric;
  // The probability that an interval of the model holds the measurement; 0: it gives none.
  double interval_coverage = 0;
  // By stage, the typical distance of a measurement from the prediction, as a share of it: half the
  // width of a typical interval. A stage that is not here: not known.
  std::map<std::string, double> typical_errors;
  // The reason for which the model's maker marked it as unusable; empty: it is usable. An unusable
  // model is served only where the planner's options say so.
  std::string unusable_reason;
  std::vector<StageDrift> drift;  // empty: nobody has measured since
};

// Time of a rank's fused lookup in one iteration, in ms.
struct ComputeCost {
  float total_ms = 0;
  float forward_ms = 0;  // 0 unless info().splits_compute
  float backward_ms = 0;
};

// Kinds of shards by the collectives that they need.
struct ShardKinds {
  bool whole_rows = false;  // all-to-all in both stages
  bool cut_rows = false;    // reduce-scatter forward, all-gather backward
  bool replicas = false;    // data_parallel: all-reduce backward

  ShardKinds& operator|=(const ShardKinds& other) {
    whole_rows = whole_rows || other.whole_rows;
    cut_rows = cut_rows || other.cut_rows;
    replicas = replicas || other.replicas;
    return *this;
  }
  bool operator==(const ShardKinds&) const = default;
};

// Load: what a shard adds to its rank's communication, in the model's own unit; a model's prices
// are functions of the sums over a rank's shards. Networks of NeuroShard: columns of pooled vectors
// that the rank exchanges for the whole batch.
struct CommLoad {
  float forward = 0;
  float backward = 0;
  ShardKinds kinds = {};  // none where the model does not tell them apart

  CommLoad& operator+=(const CommLoad& other) {
    forward += other.forward;
    backward += other.backward;
    kinds |= other.kinds;
    return *this;
  }
  bool operator==(const CommLoad&) const = default;
};

// Setup time of a stage on every rank, besides the price of the loads, in ms.
struct CommSetup {
  float forward_ms = 0;
  float backward_ms = 0;
};

// The communication of one rank of a placement, with its price in ms.
struct RankComm {
  CommLoad load = {};  // summed over the rank's shards
  double start_offset_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
};

// low <= cost <= high in each.
struct ComputeInterval {
  CostInterval total;
  std::optional<CostInterval> forward = {};  // as info().splits_compute
  std::optional<CostInterval> backward = {};
};
// low <= cost <= high in both directions, in ms.
struct CommInterval {
  CostInterval forward;
  CostInterval backward;
};

// Immutable once made; all methods may be called from any thread at the same time. Sizes are the
// caller's duty (checked by assertions); matrices are row-major.
//
// compute(rank) = head(sum over the rank's shards of phi(shard)), NeuroShard section 3. An empty
// rank costs 0 and is never passed here. A shard without rows, which some types' layouts have, is
// passed and may cost something.
class CostModel {
 public:
  virtual ~CostModel() = default;

  virtual const CostModelInfo& info() const = 0;

  // FAILED_PRECONDITION when plans for these conditions cannot be priced; names what can.
  virtual Status CheckConditions(const PricingConditions& conditions) const = 0;

  // The model as it prices these conditions, which CheckConditions has accepted; null: this object
  // does. A bound model has the same info() but for sharding_types, keeps alive what it shares with
  // this one, and is asked for these conditions alone. Callers hold it as long as they price;
  // BindModel does that.
  virtual std::shared_ptr<const CostModel> ForConditions(
      const PricingConditions& /*conditions*/) const {
    return nullptr;
  }

  // Width of phi.
  virtual int representation_width() const = 0;

  // phi is [shards.size(), representation_width()], loads has shards.size() entries.
  virtual void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                         std::span<float> phi, std::span<CommLoad> loads) const = 0;

  // head: sums is [n, representation_width()], out has n entries. Costs are at least 0.
  virtual void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out) const = 0;

  // loads is [n, num_ranks]: CommLoad::backward summed by rank; cost_ms is [n, num_ranks], at least
  // 0.
  virtual void BackwardCommCosts(int num_ranks, std::span<const float> loads,
                                 std::span<float> cost_ms) const = 0;

  // loads is [n, num_ranks]: CommLoad::forward summed by rank. start_offsets_ms is [n, num_ranks]:
  // how much later than the first each rank enters.
  virtual void ForwardCommCosts(int num_ranks, std::span<const float> loads,
                                std::span<const float> start_offsets_ms,
                                std::span<float> cost_ms) const = 0;

  // Of a placement with shards of these kinds: a stage of several collectives takes longer than one
  // all-to-all of all loads. Nothing of whole rows alone. May be below 0; costs stay at least 0.
  virtual CommSetup SetupOf(const ShardKinds& /*kinds*/) const { return {}; }

  // Intervals of the ranks' compute, each rank with its shards and their ComputeCosts; no rank is
  // empty. Not for the inner loop. Empty where the model has no intervals.
  virtual std::vector<ComputeInterval> ComputeIntervals(
      const PricingConditions& /*conditions*/,
      std::span<const std::vector<ShardFeatures>> /*shards_of_ranks*/,
      std::span<const ComputeCost> /*costs*/) const {
    return {};
  }

  // The same of one placement's communication: all ranks of the conditions, in order.
  virtual std::vector<CommInterval> CommIntervals(std::span<const RankComm> /*ranks*/) const {
    return {};
  }
};

// What prices `conditions`: the model bound to them, or `model` itself where it needs no binding.
// The result stands on its own: `model` may be dropped.
inline std::shared_ptr<const CostModel> BindModel(std::shared_ptr<const CostModel> model,
                                                  const PricingConditions& conditions) {
  std::shared_ptr<const CostModel> bound = model->ForConditions(conditions);
  return bound == nullptr ? model : bound;
}

}  // namespace neuroshard
