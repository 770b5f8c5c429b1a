#include "client/sweep/sweep_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/config/config_reader.h"

namespace neuroshard {
namespace {

constexpr int kMaxSamples = 10'000'000;
constexpr int kMaxRepeats = 100;
constexpr int kMaxTablesInSample =
    4096;                        // what a worker takes (worker.proto, ComputeSample.shards)
constexpr int kMaxRanks = 1024;  // OpenCommGroupRequest.world_size
constexpr std::int64_t kMaxBatchSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxDim = 65'536;
constexpr std::int64_t kMaxWeightsBytes = std::int64_t{1} << 50;

void ReadSettings(ConfigReader reader, MeasurementSettings* settings) {
  reader.Read("warmup_iterations", &settings->warmup_iterations, {0, 1000});
  reader.Read("min_iterations", &settings->min_iterations, {1, 10'000});
  reader.Read("max_iterations", &settings->max_iterations, {1, 10'000});
  reader.Read("target_relative_error", &settings->target_relative_error, {1e-6, 0.999999});
  reader.Read("max_time_ms", &settings->max_time_ms, {1, 600'000});
  reader.Read("flush_cache", &settings->flush_cache);
  if (settings->max_iterations < settings->min_iterations) {
    reader.AddViolation("max_iterations",
                        fmt::format("must be at least min_iterations {}, got {}",
                                    settings->min_iterations, settings->max_iterations));
  }
}

void ReadTableCounts(ConfigReader& reader, int* min_tables, int* max_tables) {
  reader.Read("min_tables", min_tables, {1, kMaxTablesInSample});
  reader.Read("max_tables", max_tables, {1, kMaxTablesInSample});
  if (*max_tables < *min_tables) {
    reader.AddViolation("max_tables", fmt::format("must be at least min_tables {}, got {}",
                                                  *min_tables, *max_tables));
  }
}

void ReadDims(ConfigReader& reader, std::vector<std::int64_t>* dims) {
  reader.Read("dims", dims, {1, kMaxDim});
  if (dims->empty()) reader.AddViolation("dims", "must not be empty");
}

void ReadNumSamples(ConfigReader& reader, int* num_samples) {
  if (!reader.Has("num_samples")) reader.AddViolation("num_samples", "is required");
  reader.Read("num_samples", num_samples, {1, kMaxSamples});
}

void ReadRepeats(ConfigReader& reader, int num_samples, int* repeats) {
  reader.Read("repeats", repeats, {1, kMaxRepeats});
  if (num_samples > kMaxSamples / *repeats) {
    reader.AddViolation("repeats", fmt::format("{} samples {} times are more than {} measurements",
                                               num_samples, *repeats, kMaxSamples));
  }
}

ComputeSweepConfig ReadComputeSweep(ConfigReader& reader) {
  ComputeSweepConfig config;
  reader.Read("seed", &config.seed);
  ReadNumSamples(reader, &config.num_samples);
  ReadRepeats(reader, config.num_samples, &config.repeats);
  reader.Read("tables", &config.tables);
  if (config.tables.empty()) reader.AddViolation("tables", "is required: the path of a table CSV");
  ReadDims(reader, &config.dims);
  ReadTableCounts(reader, &config.min_tables, &config.max_tables);
  reader.Read("max_weights_bytes", &config.max_weights_bytes, {1, kMaxWeightsBytes});
  reader.Read("batch_size", &config.batch_size, {1, kMaxBatchSize});
  reader.ReadWord("optimizer", &config.optimizer);
  if (config.optimizer != Optimizer::kSgd && config.optimizer != Optimizer::kRowwiseAdagrad) {
    reader.AddViolation("optimizer", fmt::format("workers measure sgd and rowwise_adagrad, got {}",
                                                 ToText(config.optimizer)));
  }
  ReadSettings(reader.Section("settings"), &config.settings);
  return config;
}

CommSweepConfig ReadCommSweep(ConfigReader& reader) {
  CommSweepConfig config;
  reader.Read("seed", &config.seed);
  ReadNumSamples(reader, &config.num_samples);
  ReadRepeats(reader, config.num_samples, &config.repeats);
  reader.Read("batch_size", &config.batch_size, {1, kMaxBatchSize});
  std::vector<std::int64_t> num_ranks;
  reader.Read("num_ranks", &num_ranks, {2, kMaxRanks});
  if (num_ranks.empty()) reader.AddViolation("num_ranks", "is required: a list of rank counts");
  for (const std::int64_t count : num_ranks) {
    if (count >= 2 && config.batch_size % count != 0) {
      reader.AddViolation("num_ranks", fmt::format("batch_size {} is not a multiple of {} ranks",
                                                   config.batch_size, count));
    }
    if (std::count(num_ranks.begin(), num_ranks.end(), count) > 1) {
      reader.AddViolation("num_ranks", fmt::format("lists {} more than once", count));
    }
    config.num_ranks.push_back(static_cast<int>(count));
  }
  ReadDims(reader, &config.dims);
  ReadTableCounts(reader, &config.min_tables, &config.max_tables);
  reader.Read("min_random_placement", &config.min_random_placement, {0, 1});
  reader.Read("max_random_placement", &config.max_random_placement, {0, 1});
  if (config.max_random_placement < config.min_random_placement) {
    reader.AddViolation("max_random_placement",
                        fmt::format("must be at least min_random_placement {}, got {}",
                                    config.min_random_placement, config.max_random_placement));
  }
  reader.Read("max_start_offset", &config.max_start_offset, {2, 60'000});
  reader.Read("start_offset_unit_ms", &config.start_offset_unit_ms, {0, 1000});
  if (config.max_start_offset * config.start_offset_unit_ms > 60'000) {
    reader.AddViolation("start_offset_unit_ms", "start offsets may not exceed 60000 ms");
  }
  ReadSettings(reader.Section("settings"), &config.settings);
  return config;
}

std::string CanonicalSettings(const MeasurementSettings& settings) {
  return fmt::format(
      "warmup_iterations={} min_iterations={} max_iterations={} target_relative_error={} "
      "max_time_ms={} flush_cache={}",
      settings.warmup_iterations, settings.min_iterations, settings.max_iterations,
      settings.target_relative_error, settings.max_time_ms, settings.flush_cache);
}

std::string Canonical(const ComputeSweepConfig& config) {
  return fmt::format(
      "kind=compute seed={} num_samples={} repeats={} dims={} min_tables={} max_tables={} "
      "max_weights_bytes={} batch_size={} optimizer={} {}",
      config.seed, config.num_samples, config.repeats, config.dims, config.min_tables,
      config.max_tables, config.max_weights_bytes, config.batch_size, ToText(config.optimizer),
      CanonicalSettings(config.settings));
}

std::string Canonical(const CommSweepConfig& config) {
  return fmt::format(
      "kind=comm seed={} num_samples={} repeats={} num_ranks={} batch_size={} dims={} "
      "min_tables={} "
      "max_tables={} min_random_placement={} "
      "max_random_placement={} max_start_offset={} start_offset_unit_ms={} {}",
      config.seed, config.num_samples, config.repeats, config.num_ranks, config.batch_size,
      config.dims, config.min_tables, config.max_tables, config.min_random_placement,
      config.max_random_placement, config.max_start_offset, config.start_offset_unit_ms,
      CanonicalSettings(config.settings));
}

}  // namespace

StatusOr<SweepConfig> ParseSweepConfig(const std::string& text, const std::string& file) {
  NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromText(text, file));
  std::string kind;
  reader.Read("kind", &kind);
  SweepConfig config;
  if (kind == "compute") {
    config = ReadComputeSweep(reader);
  } else if (kind == "comm") {
    config = ReadCommSweep(reader);
  } else {
    // Without a kind nobody can say which keys are known, so this fault stands alone.
    return InvalidArgument("{}: kind: must be \"compute\" or \"comm\", got \"{}\"", file, kind);
  }
  NS_RETURN_IF_ERROR(reader.Finish());
  return config;
}

std::string CanonicalText(const SweepConfig& config) {
  return std::visit([](const auto& kind) { return Canonical(kind); }, config);
}

}  // namespace neuroshard
