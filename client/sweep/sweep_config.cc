#include "client/sweep/sweep_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>

#include "common/base/sha256.h"
#include "common/text/config_reader.h"

namespace neuroshard {
namespace {

constexpr int kMaxSamples = 10'000'000;
constexpr int kMaxRepeats = 100;
constexpr int kMaxTablesInSample =
    4096;                        // what a worker takes (worker.proto, ComputeSample.shards)
constexpr int kMaxRanks = 1024;  // OpenCommGroupRequest.world_size
constexpr std::int64_t kMaxBatchSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxDim = 65'536;
constexpr std::int64_t kDimStep = 4;           // what column cuts keep to
constexpr std::int64_t kMaxDimOfRange = 4096;  // a range is a list of its multiples
constexpr std::size_t kMaxVariants = 16'384;   // of one table: dims x row shares
constexpr int kMaxActiveCandidates = 1000;
constexpr double kMinRowShare = 1e-6;
constexpr std::int64_t kMaxWeightsBytes = std::int64_t{1} << 50;

// "min_`of`" and "max_`of`".
template <typename T, typename Range>
void ReadBounds(ConfigReader& reader, std::string_view of, Range range, T* min, T* max) {
  const std::string min_key = fmt::format("min_{}", of);
  const std::string max_key = fmt::format("max_{}", of);
  reader.Read(min_key, min, range);
  reader.Read(max_key, max, range);
  if (*max < *min) {
    reader.AddViolation(max_key, "must be at least {} {}, got {}", min_key, *min, *max);
  }
}

void ReadSettings(ConfigReader reader, MeasurementSettings* settings) {
  reader.Read("warmup_iterations", &settings->warmup_iterations, {0, 1000});
  ReadBounds(reader, "iterations", IntegerRange{1, 10'000}, &settings->min_iterations,
             &settings->max_iterations);
  reader.Read("target_relative_error", &settings->target_relative_error, {1e-6, 0.999999});
  reader.Read("max_time_ms", &settings->max_time_ms, {1, 600'000});
  reader.Read("flush_cache", &settings->flush_cache);
}

template <typename E>
void ReadSomeWords(ConfigReader& reader, std::string_view key, std::vector<E>* words) {
  reader.ReadWords(key, words);
  if (words->empty()) reader.AddViolation(key, "must not be empty");
}
template <typename T, typename Range>
void ReadSome(ConfigReader& reader, std::string_view key, std::vector<T>* values, Range range) {
  reader.Read(key, values, range);
  if (values->empty()) reader.AddViolation(key, "must not be empty");
}

// A list, or {min, max}: all multiples of 4 from min to max, which are then equally likely.
void ReadDims(ConfigReader& reader, std::vector<std::int64_t>* dims) {
  if (!reader.IsMapping("dims")) {
    return ReadSome(reader, "dims", dims, IntegerRange{1, kMaxDim});
  }
  ConfigReader range = reader.Section("dims");
  std::int64_t min = kDimStep;
  std::int64_t max = kDimStep;
  if (!range.Has("max")) range.AddViolation("max", "is required");
  for (const auto& [key, bound] : {std::pair("min", &min), std::pair("max", &max)}) {
    range.Read(key, bound, {kDimStep, kMaxDimOfRange});
    if (*bound % kDimStep != 0) {
      range.AddViolation(key, "must be a multiple of {}, got {}", kDimStep, *bound);
    }
  }
  if (range.Has("max") && max < min) {
    range.AddViolation("max", "must be at least min {}, got {}", min, max);
  }
  dims->clear();
  for (std::int64_t dim = min; dim <= max; dim += kDimStep) dims->push_back(dim);
}

void ReadRowShares(ConfigReader& reader, std::size_t num_dims, std::vector<double>* row_shares) {
  ReadSome(reader, "row_shares", row_shares, RealRange{kMinRowShare, 1});
  if (row_shares->size() * num_dims > kMaxVariants) {
    reader.AddViolation("row_shares", "{} shares of {} dims are more than {} variants of a table",
                        row_shares->size(), num_dims, kMaxVariants);
  }
}

// Those of a vocabulary that `is_allowed`; `allowed` names them.
template <typename E, typename IsAllowed>
void ReadSomeOf(ConfigReader& reader, std::string_view key, std::string_view allowed,
                const IsAllowed& is_allowed, std::vector<E>* words) {
  ReadSomeWords(reader, key, words);
  for (std::size_t i = 0; i < words->size(); ++i) {
    if (is_allowed((*words)[i])) continue;
    reader.AddViolation(fmt::format("{}[{}]", key, i), "must be one of {}, got {}", allowed,
                        ToText((*words)[i]));
  }
}

// Load factors of caches. Sets are whole, so that less than a thousandth of a table is hardly a
// cache.
void ReadLoadFactors(ConfigReader& reader, const std::vector<ComputeKernel>& kernels,
                     std::vector<double>* load_factors) {
  if (reader.Has("cache_load_factors") &&
      std::ranges::find(kernels, ComputeKernel::kFusedUvmCaching) == kernels.end()) {
    reader.AddViolation("cache_load_factors",
                        "is for compute_kernels with fused_uvm_caching alone");
  }
  ReadSome(reader, "cache_load_factors", load_factors, RealRange{0.001, 1});
}

// True when the list is to be read; the single value otherwise. Giving both is a fault.
bool GivenAsList(ConfigReader& reader, std::string_view one, std::string_view list) {
  if (!reader.Has(list)) return false;
  if (reader.Has(one)) reader.AddViolation(list, "cannot be given beside {}", one);
  return true;
}

void ReadBatchSizes(ConfigReader& reader, std::vector<std::int64_t>* batch_sizes) {
  if (GivenAsList(reader, "batch_size", "batch_sizes")) {
    return ReadSome(reader, "batch_sizes", batch_sizes, IntegerRange{1, kMaxBatchSize});
  }
  std::int64_t batch_size = batch_sizes->front();
  reader.Read("batch_size", &batch_size, {1, kMaxBatchSize});
  *batch_sizes = {batch_size};
}

void ReadOptimizers(ConfigReader& reader, std::vector<Optimizer>* optimizers) {
  if (GivenAsList(reader, "optimizer", "optimizers")) {
    ReadSomeWords(reader, "optimizers", optimizers);
  } else {
    reader.ReadWord("optimizer", &optimizers->front());
  }
}

// A probability, or a list of booleans of which each is as likely as the next.
void ReadWeighted(ConfigReader& reader, double* weighted_share) {
  if (!reader.IsList("weighted")) {
    reader.Read("weighted", weighted_share, {0, 1});
    return;
  }
  std::vector<bool> choices;
  reader.Read("weighted", &choices);
  if (choices.empty()) {
    reader.AddViolation("weighted", "must not be empty");
    return;
  }
  *weighted_share =
      static_cast<double>(std::ranges::count(choices, true)) / static_cast<double>(choices.size());
}

void ReadConditions(ConfigReader& reader, ComputeConditions* conditions) {
  ReadBatchSizes(reader, &conditions->batch_sizes);
  ReadOptimizers(reader, &conditions->optimizers);
  ReadWeighted(reader, &conditions->weighted_share);
  ReadSomeWords(reader, "pooling_modes", &conditions->pooling_modes);
  ReadSomeWords(reader, "weight_dtypes", &conditions->weight_dtypes);
  ReadSomeOf(reader, "compute_kernels", "fused, fused_uvm, fused_uvm_caching", IsMeasurable,
             &conditions->compute_kernels);
  ReadLoadFactors(reader, conditions->compute_kernels, &conditions->cache_load_factors);
}

void ReadNumSamples(ConfigReader& reader, int* num_samples) {
  if (!reader.Has("num_samples")) reader.AddViolation("num_samples", "is required");
  reader.Read("num_samples", num_samples, {1, kMaxSamples});
}

void ReadRepeats(ConfigReader& reader, int num_samples, int* repeats) {
  reader.Read("repeats", repeats, {1, kMaxRepeats});
  if (num_samples > kMaxSamples / *repeats) {
    reader.AddViolation("repeats", "{} samples {} times are more than {} measurements", num_samples,
                        *repeats, kMaxSamples);
  }
}

void ReadActive(ConfigReader& reader, int num_samples, int* candidates) {
  if (!reader.Has("active")) return;
  ConfigReader active = reader.Section("active");
  if (!active.Has("candidates")) active.AddViolation("candidates", "is required");
  active.Read("candidates", candidates, {2, kMaxActiveCandidates});
  if (*candidates > 0 && num_samples > kMaxSamples / *candidates) {
    active.AddViolation("candidates", "{} for each of {} samples are more than {}", *candidates,
                        num_samples, kMaxSamples);
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
  ReadRowShares(reader, config.dims.size(), &config.row_shares);
  ReadBounds(reader, "tables", IntegerRange{1, kMaxTablesInSample}, &config.min_tables,
             &config.max_tables);
  reader.Read("max_weights_bytes", &config.max_weights_bytes, {1, kMaxWeightsBytes});
  ReadConditions(reader, &config.conditions);
  ReadActive(reader, config.num_samples, &config.active_candidates);
  ReadSettings(reader.Section("settings"), &config.settings);
  return config;
}

void ReadCollectives(ConfigReader& reader, std::vector<Collective>* collectives) {
  ReadSomeWords(reader, "collectives", collectives);
  std::sort(collectives->begin(), collectives->end());
  const auto twice = std::adjacent_find(collectives->begin(), collectives->end());
  if (twice != collectives->end()) {
    reader.AddViolation("collectives", "lists {} more than once", ToText(*twice));
  }
}

void ReadInputDist(ConfigReader& reader, int max_tables,
                   std::optional<InputDistSweepConfig>* input_dist) {
  if (!reader.Has("input_dist")) return;
  for (const char* key :
       {"collectives", "dims", "max_start_offset", "start_offset_unit_ms", "wire_dtypes"}) {
    if (reader.Has(key)) reader.AddViolation(key, "does not go with input_dist");
  }
  ConfigReader section = reader.Section("input_dist");
  InputDistSweepConfig& config = input_dist->emplace();
  section.Read("pooling_factors", &config.pooling_factors, {0, kMaxDistributedIds});
  if (config.pooling_factors.empty()) {
    section.AddViolation("pooling_factors", "is required: mean ids a sample, one or more");
  } else if (const double most = *std::ranges::max_element(config.pooling_factors);
             most * max_tables > kMaxDistributedIds) {
    section.AddViolation("pooling_factors", "{} tables of {} ids a sample are more than {}",
                         max_tables, most, kMaxDistributedIds);
  }
  ReadWeighted(section, &config.weighted_share);
}

CommSweepConfig ReadCommSweep(ConfigReader& reader) {
  CommSweepConfig config;
  reader.Read("seed", &config.seed);
  ReadNumSamples(reader, &config.num_samples);
  ReadRepeats(reader, config.num_samples, &config.repeats);
  ReadBatchSizes(reader, &config.batch_sizes);
  std::vector<std::int64_t> num_ranks;
  reader.Read("num_ranks", &num_ranks, {2, kMaxRanks});
  if (num_ranks.empty()) reader.AddViolation("num_ranks", "is required: a list of rank counts");
  for (const std::int64_t count : num_ranks) {
    for (const std::int64_t batch_size : config.batch_sizes) {
      if (count < 2 || batch_size % count == 0) continue;
      reader.AddViolation("num_ranks", "batch_size {} is not a multiple of {} ranks", batch_size,
                          count);
    }
    if (std::ranges::count(num_ranks, count) > 1) {
      reader.AddViolation("num_ranks", "lists {} more than once", count);
    }
    config.num_ranks.push_back(static_cast<int>(count));
  }
  ReadCollectives(reader, &config.collectives);
  ReadDims(reader, &config.dims);
  ReadBounds(reader, "tables", IntegerRange{1, kMaxTablesInSample}, &config.min_tables,
             &config.max_tables);
  ReadBounds(reader, "random_placement", RealRange{0, 1}, &config.min_random_placement,
             &config.max_random_placement);
  reader.Read("max_start_offset", &config.max_start_offset, {2, 60'000});
  reader.Read("start_offset_unit_ms", &config.start_offset_unit_ms, {0, 1000});
  if (config.max_start_offset * config.start_offset_unit_ms > 60'000) {
    reader.AddViolation("start_offset_unit_ms", "start offsets may not exceed 60000 ms");
  }
  ReadSomeOf(
      reader, "wire_dtypes", "fp32, fp16, bf16",
      [](DataType dtype) { return dtype == DataType::kFp32 || IsWireCast(dtype); },
      &config.wire_dtypes);
  ReadInputDist(reader, config.max_tables, &config.input_dist);
  reader.ReadWord("cadence", &config.cadence);
  for (const char* key : {"max_start_offset", "start_offset_unit_ms"}) {
    if (config.cadence == Cadence::kBarrier || !reader.Has(key) || config.input_dist) continue;
    reader.AddViolation(key, "does not go with cadence {}", ToText(config.cadence));
  }
  ReadSettings(reader.Section("settings"), &config.settings);
  return config;
}

std::string Canonical(const std::vector<std::int64_t>& batch_sizes) {
  return batch_sizes.size() == 1 ? fmt::format("batch_size={}", batch_sizes.front())
                                 : fmt::format("batch_sizes={}", batch_sizes);
}

std::string Canonical(const std::vector<Optimizer>& optimizers) {
  return optimizers.size() == 1 ? fmt::format("optimizer={}", ToText(optimizers.front()))
                                : fmt::format("optimizers={}", ToTexts(optimizers));
}

// " KEY=VALUE" of a key that came later; empty where it is at its default.
template <typename T>
std::string Later(std::string_view key, const T& value, const T& standard) {
  return value == standard ? "" : fmt::format(" {}={}", key, value);
}
template <typename E>
requires std::is_enum_v<E> std::string Later(std::string_view key, const std::vector<E>& words,
                                             const std::vector<E>& standard) {
  return words == standard ? "" : fmt::format(" {}={}", key, ToTexts(words));
}

std::string Canonical(const ComputeSweepConfig& config) {
  const ComputeConditions& of = config.conditions;
  const ComputeSweepConfig defaults;
  const ComputeConditions& standard = defaults.conditions;
  std::string kernels = Later("compute_kernels", of.compute_kernels, standard.compute_kernels);
  if (!kernels.empty()) kernels += fmt::format(" cache_load_factors={}", of.cache_load_factors);
  return fmt::format(
             "kind=compute seed={} num_samples={} repeats={} dims={} min_tables={} max_tables={} "
             "max_weights_bytes={} {} {} {}",
             config.seed, config.num_samples, config.repeats, config.dims, config.min_tables,
             config.max_tables, config.max_weights_bytes, Canonical(of.batch_sizes),
             Canonical(of.optimizers), DescribeSettings(config.settings)) +
         Later("weighted", of.weighted_share, standard.weighted_share) +
         Later("pooling_modes", of.pooling_modes, standard.pooling_modes) +
         Later("weight_dtypes", of.weight_dtypes, standard.weight_dtypes) + kernels +
         Later("row_shares", config.row_shares, defaults.row_shares) +
         Later("active_candidates", config.active_candidates, defaults.active_candidates);
}

std::string Canonical(const CommSweepConfig& config) {
  const CommSweepConfig defaults;
  std::string input_dist;
  if (config.input_dist) {
    input_dist = fmt::format(" input_dist pooling_factors={} weighted={}",
                             config.input_dist->pooling_factors, config.input_dist->weighted_share);
  }
  return fmt::format(
             "kind=comm seed={} num_samples={} repeats={} num_ranks={} {} dims={} min_tables={} "
             "max_tables={} min_random_placement={} max_random_placement={} max_start_offset={} "
             "start_offset_unit_ms={} {}",
             config.seed, config.num_samples, config.repeats, config.num_ranks,
             Canonical(config.batch_sizes), config.dims, config.min_tables, config.max_tables,
             config.min_random_placement, config.max_random_placement, config.max_start_offset,
             config.start_offset_unit_ms, DescribeSettings(config.settings)) +
         Later("collectives", config.collectives, defaults.collectives) +
         Later("wire_dtypes", config.wire_dtypes, defaults.wire_dtypes) + input_dist +
         Later("cadence", ToText(config.cadence), ToText(defaults.cadence));
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

std::string SweepHash(const SweepConfig& config, std::string_view tables_csv) {
  std::string text = CanonicalText(config);
  text += '\n';
  text += tables_csv;
  return Sha256Hex(text);
}

}  // namespace neuroshard
