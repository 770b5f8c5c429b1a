// Configuration of a sweep: a YAML file (configs/sweeps) as values. Its samples have independent
// random streams, and all of them come several times, far apart.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// Conditions in which the samples of one compute sweep differ, besides their tables. A sample draws
// one of each list, uniformly and independently; all its shards share what it drew.
struct ComputeConditions {
  std::vector<std::int64_t> batch_sizes = {65536};
  std::vector<Optimizer> optimizers = {Optimizer::kSgd};
  double weighted_share = 0;  // of the samples that pool, in [0, 1]
  std::vector<PoolingMode> pooling_modes = {PoolingMode::kSum};
  std::vector<DataType> weight_dtypes = {DataType::kFp32};
  std::vector<ComputeKernel> compute_kernels = {ComputeKernel::kFused};
  std::vector<double> cache_load_factors = {0.2};  // of samples with fused_uvm_caching

  bool operator==(const ComputeConditions&) const = default;
};

// `kind: compute`. Samples are fused lookups of random augmented tables (NeuroShard, section 3:
// every table at every dim).
struct ComputeSweepConfig {
  std::uint64_t seed = 0;
  int num_samples = 0;
  // How often every sample is measured, in as many passes over all of them: machines drift over
  // seconds and minutes, which no number of iterations in one go averages out.
  int repeats = 1;
  // CSV of tables (common/codec/table_files.h); a relative path starts at the config file's folder.
  std::string tables;
  std::vector<std::int64_t> dims = {128, 64, 32, 16, 8, 4};
  // What a shard may have of its table's rows, each in (0, 1]: a row block as row_wise sharding
  // makes it, with this share of the ids.
  std::vector<double> row_shares = {1.0};
  int min_tables = 1;
  int max_tables = 15;
  // Weights of one sample, counted as fp32 whatever they are stored as; the paper's 4 GB.
  std::int64_t max_weights_bytes = 4 * kGiB;
  ComputeConditions conditions;
  // An active sweep, where it is not 0: num_samples times as many samples are drawn, and those are
  // measured of which a cost model is least sure (client/sweep/active_sampling.h).
  int active_candidates = 0;
  MeasurementSettings settings;

  bool operator==(const ComputeSweepConfig&) const = default;
};

// Section `input_dist` of a comm sweep: distributions of ids (InputDistSample) instead of
// collectives. A table is one feature; a sample draws the probability that a table is cut in rows,
// the others are placed as in other samples, by ids.
struct InputDistSweepConfig {
  std::vector<double> pooling_factors;  // of a table, mean ids a sample
  double weighted_share = 0;            // of the samples, in [0, 1]

  bool operator==(const InputDistSweepConfig&) const = default;
};

// `kind: comm`. Samples are exchanges of random, more or less balanced placements: each gives a
// backward and a forward all-to-all, and one of every other collective that is listed.
struct CommSweepConfig {
  std::uint64_t seed = 0;
  int num_samples = 0;  // for each entry of num_ranks
  int repeats = 1;      // as for compute
  std::vector<int> num_ranks;
  std::vector<Collective> collectives = {Collective::kAllToAll};  // in the vocabulary's order
  // A placement draws one; every one is a multiple of every number of ranks.
  std::vector<std::int64_t> batch_sizes = {65536};
  std::vector<std::int64_t> dims = {128, 64, 32, 16, 8, 4};
  int min_tables = 10;
  int max_tables = 59;
  // A sample draws, uniformly from this range, the probability that a table goes to a random rank
  // rather than the least loaded.
  double min_random_placement = 0.0;
  double max_random_placement = 1.0;
  // A sample draws s from [1, max_start_offset), its ranks draw integers from [0, s); both times
  // the unit.
  int max_start_offset = 20;
  double start_offset_unit_ms = 1.0;
  // A placement draws one for its all-to-alls: fp32, or one that values are cast to (IsWireCast).
  std::vector<DataType> wire_dtypes = {DataType::kFp32};
  std::optional<InputDistSweepConfig> input_dist;
  Cadence cadence = Cadence::kBarrier;  // kBackToBack: without start offsets
  MeasurementSettings settings;

  bool operator==(const CommSweepConfig&) const = default;
};

using SweepConfig = std::variant<ComputeSweepConfig, CommSweepConfig>;

// Strict: unknown keys, wrong types and values out of range are all reported at once with their
// paths (INVALID_ARGUMENT). `file` names the text in errors.
StatusOr<SweepConfig> ParseSweepConfig(const std::string& text, const std::string& file);

// Every value that decides which samples there are and how they are measured, defaults included, in
// a fixed order. Two configs with the same canonical text (and the same tables) are the same sweep.
// Keys that came later appear only where they are not at their default: the text of a file that
// does not use them stays what it was, and a store that was begun with it goes on.
std::string CanonicalText(const SweepConfig& config);

// SHA-256 in hex of everything the samples are made from and measured with: the canonical config
// and the text of the table CSV (empty for a communication sweep). Comments and the order of keys
// do not count.
std::string SweepHash(const SweepConfig& config, std::string_view tables_csv);

// A seed for sample `index` of a sweep: the index-th output of SplitMix64 (Steele, Lea, Flood 2014)
// started at `sweep_seed`.
constexpr std::uint64_t SampleSeed(std::uint64_t sweep_seed, std::uint64_t index) {
  return MixBits(sweep_seed + (index + 1) * kGoldenGamma);
}

// `samples`, then all of them again, `repeats` (>= 1) times in all. The first pass keeps its sample
// ids; in pass p an id gets ".p" behind it ("c000012.2"). Everything else of a repeated sample is
// the same, which is how pre-training knows it again.
template <typename Sample>
std::vector<Sample> InPasses(std::vector<Sample> samples, int repeats) {
  const std::size_t distinct = samples.size();
  samples.reserve(distinct * static_cast<std::size_t>(repeats));
  for (int pass = 2; pass <= repeats; ++pass) {
    for (std::size_t i = 0; i < distinct; ++i) {
      Sample again = samples[i];
      again.sample_id += fmt::format(".{}", pass);
      samples.push_back(std::move(again));
    }
  }
  return samples;
}

}  // namespace neuroshard
