// What a sweep measures: a YAML file (configs/sweeps) as values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// `kind: compute`. Samples are fused lookups of random augmented tables (NeuroShard, section 3:
// every table at every dim).
struct ComputeSweepConfig {
  std::uint64_t seed = 0;
  int num_samples = 0;
  // How often every sample is measured, in as many passes over all of them: machines drift over
  // seconds and minutes, which no number of iterations in one go averages out.
  int repeats = 1;
  std::string tables;  // CSV of tables (common/codec/table_csv.h); a relative path starts at the
                       // config file's folder
  std::vector<std::int64_t> dims = {128, 64, 32, 16, 8, 4};
  int min_tables = 1;
  int max_tables = 15;
  std::int64_t max_weights_bytes = 4 * kGiB;  // fp32 weights of one sample, the paper's 4 GB
  std::int64_t batch_size = 65536;
  Optimizer optimizer = Optimizer::kSgd;
  MeasurementSettings settings;

  bool operator==(const ComputeSweepConfig&) const = default;
};

// `kind: comm`. Samples are all-to-alls of random, more or less balanced placements; each gives a
// backward and a forward measurement.
struct CommSweepConfig {
  std::uint64_t seed = 0;
  int num_samples = 0;  // for each entry of num_ranks
  int repeats = 1;      // as for compute
  std::vector<int> num_ranks;
  std::int64_t batch_size = 65536;
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
  MeasurementSettings settings;

  bool operator==(const CommSweepConfig&) const = default;
};

using SweepConfig = std::variant<ComputeSweepConfig, CommSweepConfig>;

// Strict: unknown keys, wrong types and values out of range are all reported at once with their
// paths (INVALID_ARGUMENT). `file` names the text in errors.
StatusOr<SweepConfig> ParseSweepConfig(const std::string& text, const std::string& file);

// Every value that decides which samples there are and how they are measured, defaults included, in
// a fixed order. Two configs with the same canonical text (and the same tables) are the same sweep.
std::string CanonicalText(const SweepConfig& config);

}  // namespace neuroshard
