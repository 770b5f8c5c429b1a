#include "common/codec/measurement_codec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/violations.h"
#include "common/codec/field_limits.h"
#include "common/codec/message_fields.h"
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

constexpr FieldRange kSeriesRanges[] = {{"samples_ms", 0, kMaxDurationMs},
                                        {"median_ms", 0, kMaxDurationMs},
                                        {"relative_spread", 0, kMaxDurationMs},
                                        {"warmup_iterations", 0, INT32_MAX}};

TimedSeries DecodeSeries(const v1::TimedSeries& message, const FieldCheck& check) {
  auto series = TakeFields<TimedSeries>(message, check, AbsentWord::kFault);
  if (series.samples_ms.empty()) check.Fail("samples_ms", "must have at least one entry, got none");
  CheckRanges<kSeriesRanges>(message, check);
  return series;
}

// Features and the ids that they have together.
void CheckFeatures(const FieldCheck& check, const std::string& features_field,
                   std::int64_t features, const std::string& ids_field, double ids) {
  bool good = check.InRange(features_field, features, 0, kMaxDistributedFeatures);
  good = check.InRange(ids_field, ids, 0.0, kMaxDistributedIds) && good;
  if (good && features == 0 && ids > 0) {
    check.Fail(ids_field, "must be 0 without features, got {}", ids);
  }
}

InputDistSample DecodeInputDist(const v1::InputDistribution& message, int ranks,
                                const FieldCheck& check) {
  const auto input = TakeFields<InputDistSample>(message, check);
  bool paired = check.HasAsMany("whole_features", message.whole_features_size(), "dim_sums", ranks);
  paired = check.HasAsMany("whole_ids", message.whole_ids_size(), "dim_sums", ranks) && paired;
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
                        CommSample& sample) {
  if (!message.has_input_distribution()) {
    check.Fail("input_distribution", "must be given for collective {}", kInputDistWord);
  }
  if (!message.direction().empty()) {
    check.Fail("direction", "must be absent for {}", kInputDistWord);
  }
  if (message.element_bytes() != 0) {
    check.Fail("element_bytes", "must be absent for {}", kInputDistWord);
  }
  if (message.start_offsets_ms_size() != 0) {
    check.Fail("start_offsets_ms", "must be empty for {}", kInputDistWord);
  }
  for (int i = 0; i < std::min(message.dim_sums_size(), kMaxRanks); ++i) {
    if (message.dim_sums(i) == 0) continue;
    check.Fail(fmt::format("dim_sums[{}]", i), "must be 0 for {}, got {}", kInputDistWord,
               message.dim_sums(i));
  }
  sample.input_dist = DecodeInputDist(message.input_distribution(), message.dim_sums_size(),
                                      check.In("input_distribution"));
}

// What a shard's fields may be, and its histogram.
void CheckShard(const v1::MeasuredShard& message, const FieldCheck& check, MeasuredShard& shard) {
  check.IsText("table", shard.table, kMaxNameBytes);
  check.InRange("rows", shard.rows, 1, kMaxExtent);
  check.InRange("cols", shard.cols, 1, kMaxDim);
  check.InRange("pooling_factor", shard.pooling_factor, 0.0, kMaxPoolingFactor);
  shard.reuse_histogram =
      DecodeReuseHistogram(check, message.reuse_histogram(), shard.pooling_factor);
  if (shard.weighted && shard.pooling_mode == PoolingMode::kNone) {
    check.Fail("weighted", "must not be given for pooling_mode \"none\", which adds up nothing");
  }
  if (!IsMeasurable(shard.compute_kernel)) {
    check.Fail("compute_kernel", "must be one of fused, fused_uvm, fused_uvm_caching, got \"{}\"",
               message.compute_kernel());
  }
  if (shard.compute_kernel == ComputeKernel::kFusedUvmCaching) {
    check.IsPositiveShare("cache_load_factor", shard.cache_load_factor);
  } else if (shard.cache_load_factor != 0) {
    check.Fail("cache_load_factor", "is for compute_kernel \"fused_uvm_caching\" alone, got \"{}\"",
               ToText(shard.compute_kernel));
  }
}

// Casts are of an all-to-all, whose elements are of that type then.
void DecodeWireDtype(const v1::CommSample& message, bool all_to_all, const FieldCheck& check,
                     CommSample& sample) {
  if (!sample.casts()) return;
  if (!IsWireCast(sample.wire_dtype)) {
    check.Fail("wire_dtype", "must be fp32, fp16 or bf16, got {}", ToText(sample.wire_dtype));
    return;
  }
  if (!all_to_all) {
    check.Fail("wire_dtype", "goes with collective {} alone, got {}", ToText(Collective::kAllToAll),
               message.collective());
  }
  const std::int64_t bytes = ElementBits(sample.wire_dtype) / 8;
  if (message.element_bytes() != 0 && message.element_bytes() != bytes) {
    check.Fail("element_bytes", "must be absent or {} for wire_dtype {}, got {}", bytes,
               ToText(sample.wire_dtype), message.element_bytes());
  }
  sample.element_bytes = bytes;
}

// What the records of both kinds have.
template <typename Measurement, typename Message>
Measurement DecodeRecord(const Message& message, const FieldCheck& check) {
  auto measurement = TakeFields<Measurement>(message, check, AbsentWord::kFault);
  check.IsText("sample_id", measurement.sample_id, kMaxNameBytes);
  UseBackendNamesOfToday(measurement.environment);
  return measurement;
}

}  // namespace

v1::MeasurementSettings EncodeMeasurementSettings(const MeasurementSettings& settings) {
  return MessageOf<v1::MeasurementSettings>(settings);
}

StatusOr<MeasurementSettings> DecodeMeasurementSettings(const v1::MeasurementSettings& message) {
  Violations violations;
  const FieldCheck check("", violations);
  const MeasurementSettings defaults;
  auto settings = TakeFields<MeasurementSettings>(message, check);
  if (settings.min_iterations == 0) settings.min_iterations = defaults.min_iterations;
  if (settings.max_iterations == 0) {
    settings.max_iterations = std::max(defaults.max_iterations, settings.min_iterations);
  } else if (message.min_iterations() == 0) {
    // A maximum alone, below the default minimum, means the maximum.
    settings.min_iterations = std::min(settings.min_iterations, settings.max_iterations);
  }
  if (settings.target_relative_error == 0) {
    settings.target_relative_error = defaults.target_relative_error;
  }
  if (settings.max_time_ms == 0) settings.max_time_ms = defaults.max_time_ms;
  check.InRange("warmup_iterations", std::int64_t{settings.warmup_iterations}, 0, 1000);
  bool ordered = check.InRange("min_iterations", std::int64_t{settings.min_iterations}, 1, 10'000);
  ordered =
      check.InRange("max_iterations", std::int64_t{settings.max_iterations}, 1, 10'000) && ordered;
  if (ordered && settings.min_iterations > settings.max_iterations) {
    check.Fail("min_iterations", "must be at most max_iterations = {}, got {}",
               settings.max_iterations, settings.min_iterations);
  }
  if (!(settings.target_relative_error > 0 && settings.target_relative_error < 1)) {
    check.Fail("target_relative_error", "must be greater than 0 and less than 1, got {}",
               settings.target_relative_error);
  }
  check.InRange("max_time_ms", settings.max_time_ms, 1, 600'000);
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return settings;
}

v1::MeasuredShard EncodeMeasuredShard(const MeasuredShard& shard) {
  return MessageOf<v1::MeasuredShard>(shard);
}

MeasuredShard DecodeMeasuredShard(const v1::MeasuredShard& message, const FieldCheck& check) {
  auto shard = TakeFields<MeasuredShard>(message, check);
  CheckShard(message, check, shard);
  return shard;
}

v1::ComputeSample EncodeComputeSample(const ComputeSample& sample) {
  return MessageOf<v1::ComputeSample>(sample);
}

StatusOr<ComputeSample> DecodeComputeSample(const v1::ComputeSample& message) {
  Violations violations;
  const FieldCheck check("", violations);
  auto sample = TakeFields<ComputeSample>(message, check);
  check.IsText("sample_id", sample.sample_id, kMaxNameBytes);
  if (message.shards_size() == 0 || message.shards_size() > kMaxShards) {
    check.Fail("shards", "must have 1 to {} entries, got {}", kMaxShards, message.shards_size());
  } else {
    for (int i = 0; i < message.shards_size(); ++i) {
      CheckShard(message.shards(i), check.In("shards", i), At(sample.shards, i));
    }
  }
  check.InRange("batch_size", sample.batch_size, 1, kMaxMeasuredBatch);
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return sample;
}

v1::CommSample EncodeCommSample(const CommSample& sample) {
  auto message = MessageOf<v1::CommSample>(sample);
  message.set_collective(std::string(CollectiveWord(sample)));
  if (sample.input_dist) {
    PutFields(*sample.input_dist, *message.mutable_input_distribution());
    return message;
  }
  message.set_direction(std::string(ToText(sample.direction)));
  message.set_element_bytes(static_cast<std::int32_t>(sample.element_bytes));
  return message;
}

StatusOr<CommSample> DecodeCommSample(const v1::CommSample& message) {
  Violations violations;
  const FieldCheck check("", violations);
  auto sample = TakeFields<CommSample>(message, check);
  check.IsText("sample_id", sample.sample_id, kMaxNameBytes);
  const bool distributes = message.collective() == kInputDistWord;
  if (!distributes) {
    sample.collective =
        check.WordOrDefault("collective", message.collective(), Collective::kAllToAll);
    if (message.has_input_distribution()) {
      check.Fail("input_distribution", "goes with collective {} alone", kInputDistWord);
    }
  }
  const bool all_to_all = sample.collective == Collective::kAllToAll && !distributes;
  if (all_to_all || (!distributes && !message.direction().empty())) {
    sample.direction = check.WordOf("direction", message.direction(), CommDirection::kForward);
  }
  const int ranks = message.dim_sums_size();
  if (ranks == 0 || ranks > kMaxRanks) {
    check.Fail("dim_sums", "must have 1 to {} entries, got {}", kMaxRanks, ranks);
  } else {
    check.EachInRange("dim_sums", message.dim_sums(), std::int64_t{0}, std::int64_t{1} << 32);
    if (!all_to_all && !distributes &&
        std::ranges::count(sample.dim_sums, sample.dim_sums.front()) != ranks) {
      check.Fail("dim_sums", "must be the same on every rank for {}, got {}",
                 ToText(sample.collective), fmt::join(sample.dim_sums, ", "));
    }
  }
  if (message.start_offsets_ms_size() != 0 && message.start_offsets_ms_size() != ranks) {
    check.Fail("start_offsets_ms", "must have none or as many entries as dim_sums, {}, got {}",
               ranks, message.start_offsets_ms_size());
  } else {
    check.EachInRange("start_offsets_ms", message.start_offsets_ms(), 0.0, kMaxStartOffsetMs);
  }
  if (check.InRange("batch_size", message.batch_size(), 1, kMaxMeasuredBatch) && ranks > 0 &&
      message.batch_size() % ranks != 0) {
    check.Fail("batch_size", "must be a multiple of the {} ranks, got {}", ranks,
               message.batch_size());
  }
  if (message.element_bytes() != 0) sample.element_bytes = message.element_bytes();
  if (check.InRange("element_bytes", sample.element_bytes, 1, 16) && Reduces(sample.collective) &&
      sample.element_bytes != kFp32Bytes) {
    check.Fail("element_bytes", "must be {} for {}, which adds fp32 numbers, got {}", kFp32Bytes,
               ToText(sample.collective), sample.element_bytes);
  }
  DecodeWireDtype(message, all_to_all, check, sample);
  if (sample.cadence != Cadence::kBarrier && message.start_offsets_ms_size() != 0) {
    check.Fail("start_offsets_ms",
               "must be empty for cadence {}, which has no barrier to count from",
               ToText(sample.cadence));
  }
  if (distributes) DecodeDistribution(message, check, sample);
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return sample;
}

v1::ComputeMeasurement EncodeComputeMeasurement(const ComputeMeasurement& measurement) {
  auto message = MessageOf<v1::ComputeMeasurement>(measurement);
  if (measurement.outcome == Outcome::kOk) {
    PutFields(measurement.forward, *message.mutable_forward());
    PutFields(measurement.backward, *message.mutable_backward());
  }
  return message;
}

StatusOr<ComputeMeasurement> DecodeComputeMeasurement(const v1::ComputeMeasurement& message) {
  Violations violations;
  const FieldCheck check("", violations);
  auto measurement = DecodeRecord<ComputeMeasurement>(message, check);
  if (measurement.outcome == Outcome::kOk) {
    measurement.forward = DecodeSeries(message.forward(), check.In("forward"));
    measurement.backward = DecodeSeries(message.backward(), check.In("backward"));
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return measurement;
}

v1::CommMeasurement EncodeCommMeasurement(const CommMeasurement& measurement) {
  auto message = MessageOf<v1::CommMeasurement>(measurement);
  if (measurement.outcome == Outcome::kOk) {
    PutFields(measurement.series, *message.mutable_series());
  }
  return message;
}

StatusOr<CommMeasurement> DecodeCommMeasurement(const v1::CommMeasurement& message) {
  Violations violations;
  const FieldCheck check("", violations);
  auto measurement = DecodeRecord<CommMeasurement>(message, check);
  check.InRange("rank", std::int64_t{measurement.rank}, 0, kMaxRanks - 1);
  if (measurement.outcome == Outcome::kOk) {
    measurement.series = DecodeSeries(message.series(), check.In("series"));
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return measurement;
}

}  // namespace neuroshard
