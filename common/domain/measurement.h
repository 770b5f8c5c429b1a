// Samples to measure and the records that measuring gives: raw series, spread, stop reason and
// environment, never just a number.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/domain/fields.h"
#include "common/domain/reuse_histogram.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// A shard as a device sees it: a table of its own.
struct MeasuredShard {
  std::string table;  // informative
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  double pooling_factor = 1.0;
  ReuseHistogram reuse_histogram{};
  DataType weight_dtype = DataType::kFp32;
  PoolingMode pooling_mode = PoolingMode::kSum;
  bool weighted = false;
  // Where its rows are, as of a TablePlan.
  ComputeKernel compute_kernel = ComputeKernel::kFused;
  double cache_load_factor = 0;

  auto operator<=>(const MeasuredShard&) const = default;
};

// Shards that one device looks up together for one global batch.
struct ComputeSample {
  std::string sample_id;
  std::vector<MeasuredShard> shards;
  std::int64_t batch_size = 0;
  Optimizer optimizer = Optimizer::kSgd;
  std::uint64_t seed = 0;

  bool operator==(const ComputeSample&) const = default;
};

// The ids of one batch, which n ranks send to those that hold the rows before any lookup. Features
// of tables that a rank holds whole go to that rank; those of tables whose rows are cut are
// bucketized by row blocks, one a rank.
struct InputDistSample {
  std::vector<std::int64_t> whole_features;  // by rank: features whose tables it holds whole
  std::vector<double> whole_ids;             // by rank: mean ids a sample of those together
  std::int64_t cut_features = 0;             // features of tables that are cut over all ranks
  double cut_ids = 0;                        // mean ids a sample of those together
  bool weighted = false;                     // every id has a weight
  std::uint64_t seed = 0;                    // of the ids

  bool operator==(const InputDistSample&) const = default;
};

// Limits of a sample (worker.proto, InputDistribution): features of a rank, and of cut tables; mean
// ids of those together.
inline constexpr std::int64_t kMaxDistributedFeatures = 4096;
inline constexpr double kMaxDistributedIds = 1e6;

// The word for it where messages and records name collectives.
inline constexpr std::string_view kInputDistWord = "input_dist";

// How timed collectives follow each other: each behind a barrier of all ranks, and so measured
// alone, or several in a row, each begun as soon as the rank's previous one has ended.
enum class Cadence { kBarrier, kBackToBack };

NS_WORDS(Cadence, {kBarrier, "barrier"}, {kBackToBack, "back_to_back"});

// One exchange of pooled embeddings or of their gradients between n ranks, for a global batch of B.
// - all_to_all: rank r holds dim_sums[r] columns for the whole batch. Forward: it sends them for
//   B / n samples to each rank; backward: it receives them.
// - The others have the same dim_sums everywhere, d. reduce_scatter: every rank has B x d elements
//   and gets the sum over the ranks for its B / n samples. all_gather: every rank has B / n x d and
//   gets B x d. all_reduce: every rank has B x d and gets their sum. The direction only says in
//   which pass trainers do it.
// - With `input_dist`, the distribution of ids instead: all enter together, dim_sums are n zeros,
//   and direction, element_bytes and collective stay as they are here.
struct CommSample {
  std::string sample_id;
  CommDirection direction = CommDirection::kForward;
  std::vector<std::int64_t> dim_sums;
  std::vector<double> start_offsets_ms;  // empty: all enter together
  std::int64_t batch_size = 0;
  std::int64_t element_bytes = 4;
  Collective collective = Collective::kAllToAll;
  std::optional<InputDistSample> input_dist = {};
  // What fp32 values of an all-to-all are cast to before they are sent, and back when they came,
  // within the time; IsWireCast, element_bytes 2 then. fp32: no casts.
  DataType wire_dtype = DataType::kFp32;
  Cadence cadence = Cadence::kBarrier;  // start_offsets_ms are for kBarrier alone

  bool casts() const { return wire_dtype != DataType::kFp32; }

  bool operator==(const CommSample&) const = default;
};

// What the sample measures: a collective's word, or kInputDistWord.
constexpr std::string_view CollectiveWord(const CommSample& sample) {
  return sample.input_dist ? kInputDistWord : ToText(sample.collective);
}

// Settings of a measurement, mostly of the stopping rule of kernels/stats.
struct MeasurementSettings {
  int warmup_iterations = 3;
  int min_iterations = 5;
  int max_iterations = 50;
  double target_relative_error = 0.02;  // of the median, 95% confidence half-width
  std::int64_t max_time_ms = 2000;
  bool flush_cache = true;

  bool operator==(const MeasurementSettings&) const = default;
};

// In one line: "warmup_iterations=3 min_iterations=5 ...". Sweeps are found again by it, and ranks
// compare it: other text is other settings.
inline std::string DescribeSettings(const MeasurementSettings& settings) {
  return fmt::format(
      "warmup_iterations={} min_iterations={} max_iterations={} target_relative_error={} "
      "max_time_ms={} flush_cache={}",
      settings.warmup_iterations, settings.min_iterations, settings.max_iterations,
      settings.target_relative_error, settings.max_time_ms, settings.flush_cache);
}

// Outcome of a measurement; only kOk has a cost.
enum class Outcome { kOk, kOutOfMemory };
// The part of the stopping rule that ended a series.
enum class StopReason { kConverged, kMaxIterations, kMaxTime };

NS_WORDS(Outcome, {kOk, "ok"}, {kOutOfMemory, "out_of_memory"});
NS_WORDS(StopReason, {kConverged, "converged"}, {kMaxIterations, "max_iterations"},
         {kMaxTime, "max_time"});

// The timed iterations of one operation, in ms, and their summary.
struct TimedSeries {
  std::vector<double> samples_ms;
  double median_ms = 0;
  double relative_spread = 0;  // (p90 - p10) / median
  StopReason stop_reason = StopReason::kConverged;
  int warmup_iterations = 0;

  bool operator==(const TimedSeries&) const = default;
};

// What of its timed iterations a series stands for: what other programs of the machine add to some
// of them is in the median as well, in the least hardly ever.
enum class SeriesCost { kMedian, kLeast };

NS_WORDS(SeriesCost, {kMedian, "median"}, {kLeast, "least"});

// Properties of a record of lookups through caches (fused_uvm_caching): distinct rows of its tables
// with a cache that a batch looked up, and how many of them the caches did not hold, means over the
// measured batches.
inline constexpr std::string_view kCachedRowsProperty = "cached_rows_per_batch";
inline constexpr std::string_view kMissedRowsProperty = "missed_rows_per_batch";

// Properties of a record of an exchange with casts: the type on the wire, and what the casts took of
// the rank's time, ms, the median over the measured iterations.
inline constexpr std::string_view kWireDtypeProperty = "wire_dtype";
inline constexpr std::string_view kCastsProperty = "casts_ms";

// Properties of a record of lookups: distinct batches that it had, and batches a table of it.
inline constexpr std::string_view kDistinctBatchesProperty = "distinct_batches";
inline constexpr std::string_view kTableBatchesProperty = "table_batches";

// Those that belong to one record; all others are the same wherever the environment is.
inline constexpr std::array kPropertiesOfOneRecord = {kCachedRowsProperty, kMissedRowsProperty,
                                                      kCastsProperty, kDistinctBatchesProperty,
                                                      kTableBatchesProperty};

// The property of a collective's record that says whose collective was timed.
inline constexpr std::string_view kCollectiveBackendProperty = "collective_backend";

// Those that say what cadence was measured, and over what a rank met its peers: its own address,
// the network of that, and the interface that has it. Not stated where the collectives do not know.
inline constexpr std::string_view kCadenceProperty = "cadence";
inline constexpr std::string_view kInterfaceProperty = "network_interface";
inline constexpr std::string_view kAddressProperty = "network_address";
inline constexpr std::string_view kNetworkProperty = "network";

// The circumstances of a measurement: build, host, device, libraries, time.
struct MeasurementEnvironment {
  std::string worker_version;
  std::string git_commit;
  std::string hostname;
  std::string device;
  std::string backend;  // whose embedding kernels the device runs (backend_names.h)
  std::map<std::string, std::string> properties;
  std::int64_t measured_at_unix_ms = 0;

  // Empty where the environment does not say.
  std::string property(std::string_view key) const {
    const auto found = properties.find(std::string(key));
    return found == properties.end() ? "" : found->second;
  }
  bool operator==(const MeasurementEnvironment&) const = default;
};

// The record of a ComputeSample.
struct ComputeMeasurement {
  std::string sample_id;
  Outcome outcome = Outcome::kOk;
  std::string detail;
  TimedSeries forward;
  TimedSeries backward;  // with the fused optimizer update
  MeasurementEnvironment environment;

  double total_ms() const { return forward.median_ms + backward.median_ms; }
  bool operator==(const ComputeMeasurement&) const = default;
};

// One rank's view of one collective: own completion minus own start.
struct CommMeasurement {
  std::string sample_id;
  int rank = 0;
  Outcome outcome = Outcome::kOk;
  std::string detail;
  TimedSeries series;
  MeasurementEnvironment environment;

  bool operator==(const CommMeasurement&) const = default;
};

// The fields of samples and of their records: named as those of worker.proto. The store's rows have
// those of NS_FIELDS as well, every one of them, so that a new one needs a new version of the store.
// Not here are those whose form depends on others, such as the collective of a CommSample.
NS_FIELDS(MeasuredShard, table, rows, cols, pooling_factor, reuse_histogram, weight_dtype,
          pooling_mode, weighted);
NS_SPARSE_FIELDS(MeasuredShard, compute_kernel, cache_load_factor);
NS_FIELDS(ComputeSample, sample_id, batch_size, optimizer, seed);
NS_SPARSE_FIELDS(ComputeSample, shards);
NS_FIELDS(InputDistSample, whole_features, whole_ids, cut_features, cut_ids, weighted, seed);
NS_FIELDS(CommSample, sample_id, dim_sums, start_offsets_ms, batch_size);
NS_SPARSE_FIELDS(CommSample, wire_dtype, cadence);
NS_FIELDS(MeasurementSettings, warmup_iterations, min_iterations, max_iterations,
          target_relative_error, max_time_ms, flush_cache);
NS_FIELDS(TimedSeries, samples_ms, median_ms, relative_spread, stop_reason, warmup_iterations);
NS_FIELDS(MeasurementEnvironment, worker_version, git_commit, hostname, device, backend);
NS_SPARSE_FIELDS(MeasurementEnvironment, properties, measured_at_unix_ms);
NS_FIELDS(ComputeMeasurement, sample_id, outcome, detail, environment);
NS_FIELDS(CommMeasurement, sample_id, rank, outcome, detail, environment);

}  // namespace neuroshard
