// Identity and coverage of a cost model, apart from its networks or formulas.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/domain/plan_cost.h"
#include "common/domain/vocabulary.h"
#include "server/cost/interval_rule.h"
#include "server/cost/measured_rates.h"

namespace neuroshard {

inline constexpr std::string_view kAnalyticKind = "analytic";
inline constexpr std::string_view kUniversalKind = "universal";

// Conditions that a model takes into account: batch sizes in a range, words of the vocabularies.
// Empty: it was measured at the single condition that ModelCoverage states, or does not state.
struct ConditionRanges {
  std::int64_t min_batch_size = 0;
  std::int64_t max_batch_size = 0;  // 0: empty
  std::vector<std::string> weight_dtypes;
  std::vector<std::string> optimizers;
  int min_ranks = 0;
  int max_ranks = 0;  // 0: empty
  int max_hosts = 0;  // 0: not stated
  std::vector<std::string> pooling_modes = {};
  std::vector<std::string> compute_kernels = {};

  bool operator==(const ConditionRanges&) const = default;
};

// Conditions, rank counts and sharding types that a model was made for. Zero or empty: not stated.
struct ModelCoverage {
  std::int64_t global_batch_size = 0;
  std::string weight_dtype;
  std::string optimizer;
  ConditionRanges ranges;
  std::vector<std::string> features;  // columns of the compute network's input, in order
  std::vector<int> num_devices;       // rank counts it can price communication for, ascending
  int max_ranks = 0;                  // any rank count up to this besides; 0: num_devices are all
  // True if the model prices communication, measured or by a fabric.
  bool prices_comm() const { return max_ranks > 1 || !num_devices.empty(); }
  // Words of DataType or Optimizer: those of the ranges, or the single one stated.
  template <typename E>
  std::vector<std::string> Words() const {
    constexpr bool kDtypes = std::is_same_v<E, DataType>;
    const auto& several = kDtypes ? ranges.weight_dtypes : ranges.optimizers;
    const std::string& one = kDtypes ? weight_dtype : optimizer;
    return several.empty() && !one.empty() ? std::vector{one} : several;
  }
  // Types that a search tries unless the caller says otherwise.
  std::vector<ShardingType> sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
  // Types whose collectives were measured, whether or not a search tries them by default.
  std::vector<ShardingType> measured_types;
  // Name of the fabric whose published figures price communication that was not measured; empty: it
  // was measured, or there is none.
  std::string comm_fabric;
};

// Properties of the cost function that evaluation and search rely on.
struct ModelProperties {
  bool splits_compute = false;  // tells forward from backward compute
  // The head is linear without a constant: a rank costs the sum of what its shards cost alone.
  bool additive_compute = false;
  // The head is convex: by Jensen's inequality, the mean over ranks of head(sum) is at least head
  // of the mean sum.
  bool convex_compute = false;
  // A rank's communication costs the sum of what its shards' loads cost alone; other ranks and
  // start offsets do not matter.
  bool separable_comm = false;
  // A placement's communication takes a network run a rank, not one in all; searches count it as
  // more work.
  bool comm_run_a_rank = false;
  // Costs of a shard alone, compute and communication together, are monotone:
  // - they are the same in table_wise, column_wise and table_column_wise, and for all row blocks of
  //   a table;
  // - the cost per column does not rise with the columns;
  // - with rows over more holders, it neither rises for one holder nor falls for all of them
  //   together.
  // So a few shards bound all ways of cutting a table (server/evaluate/README.md).
  bool monotone_shard_costs = false;
  // It can price the distribution of ids as TorchRec does (server/cost/input_dist.h).
  bool torchrec_input_dist = false;
  // The measured distribution of ids; none: a formula prices it.
  std::optional<MeasuredInputDist> measured_input_dist = {};
  // Error of the measured rates; none: not known.
  std::optional<IntervalManifest> input_dist_interval = {};
  // Measured casts; a formula prices types without a rate.
  MeasuredCasts measured_casts = {};
  // What steps of a trainer take beside kernels and collectives; none: not known.
  std::optional<MeasuredSteps> measured_steps = {};
  // The probability that an interval of the model holds the measurement; 0: it gives none.
  double interval_coverage = 0;
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

// Identity of a model, its coverage, its properties and how far off it is.
struct CostModelInfo {
  std::string name;
  int version = 0;
  std::string kind;         // "neural"; kAnalyticKind: formulas, nothing was measured
  std::string digest = {};  // CostModelRef's: SHA-256 of its files; empty: built in
  MeasuredWith measured_with;
  std::map<std::string, std::string> details;  // flattened metrics and provenance
  // The reason for which the model's maker marked it as unusable; empty: it is usable. An unusable
  // model is served only where the planner's options say so.
  std::string unusable_reason;
  ModelCoverage coverage;
  ModelProperties properties;
  // Typical relative error by stage: half the width of a typical interval. Stages that are missing
  // here have no known error.
  std::map<std::string, double> typical_errors;
  std::vector<StageDrift> drift;  // empty: nobody has measured since
};

}  // namespace neuroshard
