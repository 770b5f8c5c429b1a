#include "common/codec/measurement_codec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/codec/field_limits.h"
#include "common/codec/table_codec.h"
#include "common/domain/backend_names.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxMeasuredBatch = std::int64_t{1} << 24;
constexpr int kMaxShards = 4096;
constexpr int kMaxRanks = 1024;
constexpr double kMaxStartOffsetMs = 60'000;
constexpr std::int64_t kFp32Bytes = 4;
constexpr double kMaxDurationMs = 1e9;  // eleven days: nothing real, but finite

v1::TimedSeries EncodeSeries(const TimedSeries& series) {
  v1::TimedSeries message;
  message.mutable_samples_ms()->Add(series.samples_ms.begin(), series.samples_ms.end());
  message.set_median_ms(series.median_ms);
  message.set_relative_spread(series.relative_spread);
  message.set_stop_reason(std::string(ToText(series.stop_reason)));
  message.set_warmup_iterations(series.warmup_iterations);
  return message;
}

TimedSeries DecodeSeries(const v1::TimedSeries& message, const FieldCheck& check) {
  TimedSeries series;
  if (message.samples_ms_size() == 0) {
    check.Fail("samples_ms", "must have at least one entry, got none");
  }
  for (int i = 0; i < message.samples_ms_size(); ++i) {
    check.InRange(fmt::format("samples_ms[{}]", i), message.samples_ms(i), 0.0, kMaxDurationMs);
  }
  series.samples_ms.assign(message.samples_ms().begin(), message.samples_ms().end());
  check.InRange("median_ms", message.median_ms(), 0.0, kMaxDurationMs);
  series.median_ms = message.median_ms();
  check.InRange("relative_spread", message.relative_spread(), 0.0, kMaxDurationMs);
  series.relative_spread = message.relative_spread();
  series.stop_reason = check.WordOf("stop_reason", message.stop_reason(), StopReason::kConverged);
  check.InRange("warmup_iterations", std::int64_t{message.warmup_iterations()}, 0, INT32_MAX);
  series.warmup_iterations = message.warmup_iterations();
  return series;
}

}  // namespace

v1::MeasurementSettings EncodeMeasurementSettings(const MeasurementSettings& settings) {
  v1::MeasurementSettings message;
  message.set_warmup_iterations(settings.warmup_iterations);
  message.set_min_iterations(settings.min_iterations);
  message.set_max_iterations(settings.max_iterations);
  message.set_target_relative_error(settings.target_relative_error);
  message.set_max_time_ms(settings.max_time_ms);
  message.set_flush_cache(settings.flush_cache);
  return message;
}

StatusOr<MeasurementSettings> DecodeMeasurementSettings(const v1::MeasurementSettings& message) {
  Violations violations;
  const FieldCheck check("", violations);
  MeasurementSettings settings;
  if (message.has_warmup_iterations()) settings.warmup_iterations = message.warmup_iterations();
  if (message.min_iterations() != 0) settings.min_iterations = message.min_iterations();
  if (message.max_iterations() != 0) {
    settings.max_iterations = message.max_iterations();
    // A maximum alone, below the default minimum, means the maximum.
    if (message.min_iterations() == 0 && settings.max_iterations < settings.min_iterations) {
      settings.min_iterations = settings.max_iterations;
    }
  } else if (settings.max_iterations < settings.min_iterations) {
    settings.max_iterations = settings.min_iterations;
  }
  if (message.target_relative_error() != 0) {
    settings.target_relative_error = message.target_relative_error();
  }
  if (message.max_time_ms() != 0) settings.max_time_ms = message.max_time_ms();
  if (message.has_flush_cache()) settings.flush_cache = message.flush_cache();
  check.InRange("warmup_iterations", std::int64_t{settings.warmup_iterations}, 0, 1000);
  const bool ordered =
      check.InRange("min_iterations", std::int64_t{settings.min_iterations}, 1, 10'000) &
      check.InRange("max_iterations", std::int64_t{settings.max_iterations}, 1, 10'000);
  if (ordered && settings.min_iterations > settings.max_iterations) {
    check.Fail("min_iterations", fmt::format("must be at most max_iterations = {}, got {}",
                                             settings.max_iterations, settings.min_iterations));
  }
  if (!(settings.target_relative_error > 0 && settings.target_relative_error < 1)) {
    check.Fail("target_relative_error",
               fmt::format("must be greater than 0 and less than 1, got {}",
                           settings.target_relative_error));
  }
  check.InRange("max_time_ms", settings.max_time_ms, 1, 600'000);
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return settings;
}

v1::MeasuredShard EncodeMeasuredShard(const MeasuredShard& shard) {
  v1::MeasuredShard message;
  message.set_table(shard.table);
  message.set_rows(shard.rows);
  message.set_cols(shard.cols);
  message.set_pooling_factor(shard.pooling_factor);
  message.mutable_reuse_histogram()->Add(shard.reuse_histogram.begin(),
                                         shard.reuse_histogram.end());
  message.set_weight_dtype(std::string(ToText(shard.weight_dtype)));
  message.set_pooling_mode(std::string(ToText(shard.pooling_mode)));
  message.set_weighted(shard.weighted);
  if (shard.compute_kernel != ComputeKernel::kFused) {
    message.set_compute_kernel(std::string(ToText(shard.compute_kernel)));
  }
  if (shard.cache_load_factor != 0) message.set_cache_load_factor(shard.cache_load_factor);
  return message;
}

MeasuredShard DecodeMeasuredShard(const v1::MeasuredShard& message, const FieldCheck& check) {
  MeasuredShard shard;
  check.IsText("table", message.table(), kMaxNameBytes);
  shard.table = message.table();
  check.InRange("rows", message.rows(), 1, kMaxExtent);
  shard.rows = message.rows();
  check.InRange("cols", message.cols(), 1, kMaxDim);
  shard.cols = message.cols();
  check.InRange("pooling_factor", message.pooling_factor(), 0.0, kMaxPoolingFactor);
  shard.pooling_factor = message.pooling_factor();
  shard.reuse_histogram =
      DecodeReuseHistogram(check, message.reuse_histogram(), message.pooling_factor());
  shard.weight_dtype = check.WordOrDefault("weight_dtype", message.weight_dtype(), DataType::kFp32);
  shard.pooling_mode =
      check.WordOrDefault("pooling_mode", message.pooling_mode(), PoolingMode::kSum);
  shard.weighted = message.weighted();
  if (shard.weighted && shard.pooling_mode == PoolingMode::kNone) {
    check.Fail("weighted", "must not be given for pooling_mode \"none\", which adds up nothing");
  }
  shard.compute_kernel =
      check.WordOrDefault("compute_kernel", message.compute_kernel(), ComputeKernel::kFused);
  if (!IsMeasurable(shard.compute_kernel)) {
    check.Fail("compute_kernel",
               fmt::format("must be one of fused, fused_uvm, fused_uvm_caching, got \"{}\"",
                           message.compute_kernel()));
  }
  shard.cache_load_factor = message.cache_load_factor();
  if (shard.compute_kernel == ComputeKernel::kFusedUvmCaching) {
    check.IsPositiveShare("cache_load_factor", shard.cache_load_factor);
  } else if (shard.cache_load_factor != 0) {
    check.Fail("cache_load_factor",
               fmt::format("is for compute_kernel \"fused_uvm_caching\" alone, got \"{}\"",
                           ToText(shard.compute_kernel)));
  }
  return shard;
}

v1::ComputeSample EncodeComputeSample(const ComputeSample& sample) {
  v1::ComputeSample message;
  message.set_sample_id(sample.sample_id);
  for (const MeasuredShard& shard : sample.shards) {
    *message.add_shards() = EncodeMeasuredShard(shard);
  }
  message.set_batch_size(sample.batch_size);
  message.set_optimizer(std::string(ToText(sample.optimizer)));
  message.set_seed(sample.seed);
  return message;
}

StatusOr<ComputeSample> DecodeComputeSample(const v1::ComputeSample& message) {
  Violations violations;
  const FieldCheck check("", violations);
  ComputeSample sample;
  check.IsText("sample_id", message.sample_id(), kMaxNameBytes);
  sample.sample_id = message.sample_id();
  if (message.shards_size() == 0 || message.shards_size() > kMaxShards) {
    check.Fail("shards",
               fmt::format("must have 1 to {} entries, got {}", kMaxShards, message.shards_size()));
  } else {
    for (int i = 0; i < message.shards_size(); ++i) {
      sample.shards.push_back(DecodeMeasuredShard(
          message.shards(i), FieldCheck(fmt::format("shards[{}]", i), violations)));
    }
  }
  check.InRange("batch_size", message.batch_size(), 1, kMaxMeasuredBatch);
  sample.batch_size = message.batch_size();
  sample.optimizer = check.WordOrDefault("optimizer", message.optimizer(), Optimizer::kSgd);
  sample.seed = message.seed();
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return sample;
}

namespace {

v1::InputDistribution EncodeInputDist(const InputDistSample& input) {
  v1::InputDistribution message;
  message.mutable_whole_features()->Add(input.whole_features.begin(), input.whole_features.end());
  message.mutable_whole_ids()->Add(input.whole_ids.begin(), input.whole_ids.end());
  message.set_cut_features(static_cast<std::int32_t>(input.cut_features));
  message.set_cut_ids(input.cut_ids);
  message.set_weighted(input.weighted);
  message.set_seed(input.seed);
  return message;
}

// Features and the ids that they have together.
void CheckFeatures(const FieldCheck& check, const std::string& features_field,
                   std::int64_t features, const std::string& ids_field, double ids) {
  const bool good = check.InRange(features_field, features, 0, kMaxDistributedFeatures) &
                    check.InRange(ids_field, ids, 0.0, kMaxDistributedIds);
  if (good && features == 0 && ids > 0) {
    check.Fail(ids_field, fmt::format("must be 0 without features, got {}", ids));
  }
}

InputDistSample DecodeInputDist(const v1::InputDistribution& message, int ranks,
                                const FieldCheck& check) {
  InputDistSample input;
  input.whole_features.assign(message.whole_features().begin(), message.whole_features().end());
  input.whole_ids.assign(message.whole_ids().begin(), message.whole_ids().end());
  input.cut_features = message.cut_features();
  input.cut_ids = message.cut_ids();
  input.weighted = message.weighted();
  input.seed = message.seed();
  bool paired = true;
  for (const auto& [field, entries] : {std::pair("whole_features", message.whole_features_size()),
                                       std::pair("whole_ids", message.whole_ids_size())}) {
    if (entries == ranks) continue;
    paired = false;
    check.Fail(field,
               fmt::format("must have as many entries as dim_sums, {}, got {}", ranks, entries));
  }
  std::int64_t features = input.cut_features;
  for (int i = 0; paired && i < ranks; ++i) {
    features += message.whole_features(i);
    CheckFeatures(check, fmt::format("whole_features[{}]", i), message.whole_features(i),
                  fmt::format("whole_ids[{}]", i), message.whole_ids(i));
  }
  CheckFeatures(check, "cut_features", input.cut_features, "cut_ids", input.cut_ids);
  if (paired && features == 0) check.Fail("whole_features", "must have at least one feature");
  return input;
}

// A distribution of ids has no columns, and its ranks enter together.
void DecodeDistribution(const v1::CommSample& message, const FieldCheck& check,
                        Violations& violations, CommSample& sample) {
  if (!message.has_input_distribution()) {
    check.Fail("input_distribution",
               fmt::format("must be given for collective {}", kInputDistWord));
  }
  if (!message.direction().empty()) {
    check.Fail("direction", fmt::format("must be absent for {}", kInputDistWord));
  }
  if (message.element_bytes() != 0) {
    check.Fail("element_bytes", fmt::format("must be absent for {}", kInputDistWord));
  }
  if (message.start_offsets_ms_size() != 0) {
    check.Fail("start_offsets_ms", fmt::format("must be empty for {}", kInputDistWord));
  }
  for (int i = 0; i < std::min(message.dim_sums_size(), kMaxRanks); ++i) {
    if (message.dim_sums(i) == 0) continue;
    check.Fail(fmt::format("dim_sums[{}]", i),
               fmt::format("must be 0 for {}, got {}", kInputDistWord, message.dim_sums(i)));
  }
  sample.input_dist = DecodeInputDist(message.input_distribution(), message.dim_sums_size(),
                                      FieldCheck("input_distribution", violations));
}

// Casts are of an all-to-all, whose elements are of that type then.
void DecodeWireDtype(const v1::CommSample& message, bool all_to_all, const FieldCheck& check,
                     CommSample& sample) {
  sample.wire_dtype = check.WordOrDefault("wire_dtype", message.wire_dtype(), DataType::kFp32);
  if (!sample.casts()) return;
  if (!IsWireCast(sample.wire_dtype)) {
    check.Fail("wire_dtype",
               fmt::format("must be fp32, fp16 or bf16, got {}", ToText(sample.wire_dtype)));
    return;
  }
  if (!all_to_all) {
    check.Fail("wire_dtype", fmt::format("goes with collective {} alone, got {}",
                                         ToText(Collective::kAllToAll), message.collective()));
  }
  const std::int64_t bytes = ElementBytes(sample.wire_dtype);
  if (message.element_bytes() != 0 && message.element_bytes() != bytes) {
    check.Fail("element_bytes", fmt::format("must be absent or {} for wire_dtype {}, got {}", bytes,
                                            ToText(sample.wire_dtype), message.element_bytes()));
  }
  sample.element_bytes = bytes;
}

}  // namespace

v1::CommSample EncodeCommSample(const CommSample& sample) {
  v1::CommSample message;
  message.set_sample_id(sample.sample_id);
  message.mutable_dim_sums()->Add(sample.dim_sums.begin(), sample.dim_sums.end());
  message.set_batch_size(sample.batch_size);
  message.set_collective(std::string(CollectiveWord(sample)));
  if (sample.cadence != Cadence::kBarrier) {
    message.set_cadence(std::string(ToText(sample.cadence)));
  }
  if (sample.input_dist) {
    *message.mutable_input_distribution() = EncodeInputDist(*sample.input_dist);
    return message;
  }
  message.set_direction(std::string(ToText(sample.direction)));
  message.mutable_start_offsets_ms()->Add(sample.start_offsets_ms.begin(),
                                          sample.start_offsets_ms.end());
  message.set_element_bytes(static_cast<std::int32_t>(sample.element_bytes));
  if (sample.casts()) {
    message.set_wire_dtype(std::string(ToText(sample.wire_dtype)));
  }
  return message;
}

StatusOr<CommSample> DecodeCommSample(const v1::CommSample& message) {
  Violations violations;
  const FieldCheck check("", violations);
  CommSample sample;
  check.IsText("sample_id", message.sample_id(), kMaxNameBytes);
  sample.sample_id = message.sample_id();
  const bool distributes = message.collective() == kInputDistWord;
  if (!distributes) {
    sample.collective =
        check.WordOrDefault("collective", message.collective(), Collective::kAllToAll);
    if (message.has_input_distribution()) {
      check.Fail("input_distribution",
                 fmt::format("goes with collective {} alone", kInputDistWord));
    }
  }
  const bool all_to_all = sample.collective == Collective::kAllToAll && !distributes;
  if (all_to_all || (!distributes && !message.direction().empty())) {
    sample.direction = check.WordOf("direction", message.direction(), CommDirection::kForward);
  }
  const int ranks = message.dim_sums_size();
  if (ranks == 0 || ranks > kMaxRanks) {
    check.Fail("dim_sums", fmt::format("must have 1 to {} entries, got {}", kMaxRanks, ranks));
  } else {
    for (int i = 0; i < ranks; ++i) {
      check.InRange(fmt::format("dim_sums[{}]", i), message.dim_sums(i), 0, std::int64_t{1} << 32);
    }
    sample.dim_sums.assign(message.dim_sums().begin(), message.dim_sums().end());
    if (!all_to_all && !distributes &&
        std::count(sample.dim_sums.begin(), sample.dim_sums.end(), sample.dim_sums.front()) !=
            ranks) {
      check.Fail("dim_sums",
                 fmt::format("must be the same on every rank for {}, got {}",
                             ToText(sample.collective), fmt::join(sample.dim_sums, ", ")));
    }
  }
  if (message.start_offsets_ms_size() != 0 && message.start_offsets_ms_size() != ranks) {
    check.Fail("start_offsets_ms", fmt::format("must have none or as many entries as dim_sums, {}, "
                                               "got {}",
                                               ranks, message.start_offsets_ms_size()));
  } else {
    for (int i = 0; i < message.start_offsets_ms_size(); ++i) {
      check.InRange(fmt::format("start_offsets_ms[{}]", i), message.start_offsets_ms(i), 0.0,
                    kMaxStartOffsetMs);
    }
    sample.start_offsets_ms.assign(message.start_offsets_ms().begin(),
                                   message.start_offsets_ms().end());
  }
  if (check.InRange("batch_size", message.batch_size(), 1, kMaxMeasuredBatch) && ranks > 0 &&
      message.batch_size() % ranks != 0) {
    check.Fail("batch_size", fmt::format("must be a multiple of the {} ranks, got {}", ranks,
                                         message.batch_size()));
  }
  sample.batch_size = message.batch_size();
  if (message.element_bytes() != 0) sample.element_bytes = message.element_bytes();
  if (check.InRange("element_bytes", sample.element_bytes, 1, 16) && Reduces(sample.collective) &&
      sample.element_bytes != kFp32Bytes) {
    check.Fail("element_bytes",
               fmt::format("must be {} for {}, which adds fp32 numbers, got {}", kFp32Bytes,
                           ToText(sample.collective), sample.element_bytes));
  }
  DecodeWireDtype(message, all_to_all, check, sample);
  sample.cadence = check.WordOrDefault("cadence", message.cadence(), Cadence::kBarrier);
  if (sample.cadence != Cadence::kBarrier && message.start_offsets_ms_size() != 0) {
    check.Fail("start_offsets_ms", fmt::format("must be empty for cadence {}, which has no barrier "
                                               "to count from",
                                               ToText(sample.cadence)));
  }
  if (distributes) DecodeDistribution(message, check, violations, sample);
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return sample;
}

v1::MeasurementEnvironment EncodeMeasurementEnvironment(const MeasurementEnvironment& environment) {
  v1::MeasurementEnvironment message;
  message.set_worker_version(environment.worker_version);
  message.set_git_commit(environment.git_commit);
  message.set_hostname(environment.hostname);
  message.set_device(environment.device);
  message.set_backend(environment.backend);
  message.mutable_properties()->insert(environment.properties.begin(),
                                       environment.properties.end());
  message.set_measured_at_unix_ms(environment.measured_at_unix_ms);
  return message;
}

MeasurementEnvironment DecodeMeasurementEnvironment(const v1::MeasurementEnvironment& message) {
  MeasurementEnvironment environment;
  environment.worker_version = message.worker_version();
  environment.git_commit = message.git_commit();
  environment.hostname = message.hostname();
  environment.device = message.device();
  environment.backend = message.backend();
  environment.properties.insert(message.properties().begin(), message.properties().end());
  environment.measured_at_unix_ms = message.measured_at_unix_ms();
  UseBackendNamesOfToday(environment);
  return environment;
}

v1::ComputeMeasurement EncodeComputeMeasurement(const ComputeMeasurement& measurement) {
  v1::ComputeMeasurement message;
  message.set_sample_id(measurement.sample_id);
  message.set_outcome(std::string(ToText(measurement.outcome)));
  message.set_detail(measurement.detail);
  if (measurement.outcome == Outcome::kOk) {
    *message.mutable_forward() = EncodeSeries(measurement.forward);
    *message.mutable_backward() = EncodeSeries(measurement.backward);
  }
  *message.mutable_environment() = EncodeMeasurementEnvironment(measurement.environment);
  return message;
}

StatusOr<ComputeMeasurement> DecodeComputeMeasurement(const v1::ComputeMeasurement& message) {
  Violations violations;
  const FieldCheck check("", violations);
  ComputeMeasurement measurement;
  check.IsText("sample_id", message.sample_id(), kMaxNameBytes);
  measurement.sample_id = message.sample_id();
  measurement.outcome = check.WordOf("outcome", message.outcome(), Outcome::kOk);
  measurement.detail = message.detail();
  if (measurement.outcome == Outcome::kOk) {
    measurement.forward = DecodeSeries(message.forward(), FieldCheck("forward", violations));
    measurement.backward = DecodeSeries(message.backward(), FieldCheck("backward", violations));
  }
  measurement.environment = DecodeMeasurementEnvironment(message.environment());
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return measurement;
}

v1::CommMeasurement EncodeCommMeasurement(const CommMeasurement& measurement) {
  v1::CommMeasurement message;
  message.set_sample_id(measurement.sample_id);
  message.set_rank(measurement.rank);
  message.set_outcome(std::string(ToText(measurement.outcome)));
  message.set_detail(measurement.detail);
  if (measurement.outcome == Outcome::kOk)
    *message.mutable_series() = EncodeSeries(measurement.series);
  *message.mutable_environment() = EncodeMeasurementEnvironment(measurement.environment);
  return message;
}

StatusOr<CommMeasurement> DecodeCommMeasurement(const v1::CommMeasurement& message) {
  Violations violations;
  const FieldCheck check("", violations);
  CommMeasurement measurement;
  check.IsText("sample_id", message.sample_id(), kMaxNameBytes);
  measurement.sample_id = message.sample_id();
  check.InRange("rank", std::int64_t{message.rank()}, 0, kMaxRanks - 1);
  measurement.rank = message.rank();
  measurement.outcome = check.WordOf("outcome", message.outcome(), Outcome::kOk);
  measurement.detail = message.detail();
  if (measurement.outcome == Outcome::kOk) {
    measurement.series = DecodeSeries(message.series(), FieldCheck("series", violations));
  }
  measurement.environment = DecodeMeasurementEnvironment(message.environment());
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return measurement;
}

}  // namespace neuroshard
