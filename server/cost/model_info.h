// What a cost model is and what it was measured at, apart from its networks or formulas.
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
#include "server/cost/measured_casts.h"
#include "server/cost/measured_input_dist.h"

namespace neuroshard {

inline constexpr std::string_view kAnalyticKind = "analytic";
inline constexpr std::string_view kUniversalKind = "universal";

// Conditions that a model takes into account: batch sizes in a range, words of the vocabularies.
// Empty: it was measured at the one condition that ModelCoverage states, or at one that it does not
// state.
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
  // Whether it prices communication, measured or by a fabric.
  bool prices_comm() const { return max_ranks > 1 || !num_devices.empty(); }
  // Words of DataType or Optimizer: those of the ranges, or the one stated alone.
  template <typename E>
  std::vector<std::string> Words() const {
    constexpr bool kDtypes = std::is_same_v<E, DataType>;
    const auto& several = kDtypes ? ranges.weight_dtypes : ranges.optimizers;
    const std::string& one = kDtypes ? weight_dtype : optimizer;
    return several.empty() && !one.empty() ? std::vector{one} : several;
  }
  // What a search tries where the caller does not say.
  std::vector<ShardingType> sharding_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
  // Types whose collectives it was measured on, whether a search tries them unasked or not.
  std::vector<ShardingType> measured_types;
  // Communication is priced by the published figures of the fabric of this name and was not
  // measured; empty: it was, or there is none.
  std::string comm_fabric;
};

// Properties of the cost function that evaluation and search rely on.
struct ModelProperties {
  bool splits_compute = false;  // tells forward from backward compute
  // head is linear without a constant: a rank costs the sum of what its shards cost alone.
  bool additive_compute = false;
  // head is convex: by Jensen's inequality, the mean over ranks of head(sum) is at least head of
  // the mean sum.
  bool convex_compute = false;
  // A rank's communication costs the sum of what its shards' loads cost alone; other ranks and
  // start offsets do not matter.
  bool separable_comm = false;
  // A placement's communication takes a network run a rank, not one in all; searches count it as
  // more work.
  bool comm_run_a_rank = false;
  // What a shard alone costs, compute and communication together:
  // - is the same in table_wise, column_wise and table_column_wise, and for all row blocks of a
  //   table;
  // - per column does not rise with its columns;
  // - with rows over more holders neither rises for one holder nor falls for all of them together.
  // So a few shards bound all ways of cutting a table (server/evaluate/README.md).
  bool monotone_shard_costs = false;
  // It prices the distribution of ids, if asked to, as TorchRec does (server/cost/input_dist.h).
  bool torchrec_input_dist = false;
  // The distribution of ids was measured; none: it is a formula.
  std::optional<MeasuredInputDist> measured_input_dist = {};
  // How far off its rates are; none: not known.
  std::optional<IntervalManifest> input_dist_interval = {};
  // Casts to types that have a rate were measured, those to others are a formula.
  MeasuredCasts measured_casts = {};
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
  // By stage, the typical distance of a measurement from the prediction, as a share of it: half the
  // width of a typical interval. A stage that is not here: not known.
  std::map<std::string, double> typical_errors;
  std::vector<StageDrift> drift;  // empty: nobody has measured since
};

}  // namespace neuroshard
