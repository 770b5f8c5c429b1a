#include "client/sweep/sweep_config.h"

#include <algorithm>

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

void ReadSettings(ConfigReader reader, MeasurementSettings* settings) {
  reader.Read("warmup_iterations", &settings->warmup_iterations, {0, 1000});
  reader.Read("min_iterations", &settings->min_iterations, {1, 10'000});
  reader.Read("max_iterations", &settings->max_iterations, {1, 10'000});
  reader.Read("target_relative_error", &settings->target_relative_error, {1e-6, 0.999999});
  reader.Read("max_time_ms", &settings->max_time_ms, {1, 600'000});
  reader.Read("flush_cache", &settings->flush_cache);
  if (settings->max_iterations < settings->min_iterations) {
    reader.AddViolation("max_iterations", "must be at least min_iterations {}, got {}",
                        settings->min_iterations, settings->max_iterations);
  }
}

void ReadTableCounts(ConfigReader& reader, int* min_tables, int* max_tables) {
  reader.Read("min_tables", min_tables, {1, kMaxTablesInSample});
  reader.Read("max_tables", max_tables, {1, kMaxTablesInSample});
  if (*max_tables < *min_tables) {
    reader.AddViolation("max_tables", "must be at least min_tables {}, got {}", *min_tables,
                        *max_tables);
  }
}

template <typename E>
void ReadSomeWords(ConfigReader& reader, std::string_view key, std::vector<E>* words) {
  reader.ReadWords(key, words);
  if (words->empty()) reader.AddViolation(key, "must not be empty");
}

// A list, or {min, max}: all multiples of 4 from min to max, which are then equally likely.
void ReadDims(ConfigReader& reader, std::vector<std::int64_t>* dims) {
  if (!reader.IsMapping("dims")) {
    reader.Read("dims", dims, {1, kMaxDim});
    if (dims->empty()) reader.AddViolation("dims", "must not be empty");
    return;
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
  reader.Read("row_shares", row_shares, {kMinRowShare, 1});
  if (row_shares->empty()) reader.AddViolation("row_shares", "must not be empty");
  if (row_shares->size() * num_dims > kMaxVariants) {
    reader.AddViolation("row_shares", "{} shares of {} dims are more than {} variants of a table",
                        row_shares->size(), num_dims, kMaxVariants);
  }
}

void ReadKernels(ConfigReader& reader, std::vector<ComputeKernel>* kernels) {
  ReadSomeWords(reader, "compute_kernels", kernels);
  for (std::size_t i = 0; i < kernels->size(); ++i) {
    if (IsMeasurable((*kernels)[i])) continue;
    reader.AddViolation(fmt::format("compute_kernels[{}]", i),
                        "must be one of fused, fused_uvm, fused_uvm_caching, got {}",
                        ToText((*kernels)[i]));
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
  reader.Read("cache_load_factors", load_factors, {0.001, 1});
  if (load_factors->empty()) reader.AddViolation("cache_load_factors", "must not be empty");
}

// True when the list is to be read; the single value otherwise. Giving both is a fault.
bool GivenAsList(ConfigReader& reader, std::string_view one, std::string_view list) {
  if (!reader.Has(list)) return false;
  if (reader.Has(one)) reader.AddViolation(list, "cannot be given beside {}", one);
  return true;
}

void ReadBatchSizes(ConfigReader& reader, std::vector<std::int64_t>* batch_sizes) {
  if (GivenAsList(reader, "batch_size", "batch_sizes")) {
    reader.Read("batch_sizes", batch_sizes, {1, kMaxBatchSize});
    if (batch_sizes->empty()) reader.AddViolation("batch_sizes", "must not be empty");
    return;
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
  ReadKernels(reader, &conditions->compute_kernels);
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
  ReadTableCounts(reader, &config.min_tables, &config.max_tables);
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

void ReadWireDtypes(ConfigReader& reader, std::vector<DataType>* dtypes) {
  ReadSomeWords(reader, "wire_dtypes", dtypes);
  for (std::size_t i = 0; i < dtypes->size(); ++i) {
    if ((*dtypes)[i] == DataType::kFp32 || IsWireCast((*dtypes)[i])) continue;
    reader.AddViolation(fmt::format("wire_dtypes[{}]", i),
                        "must be one of fp32, fp16, bf16, got {}", ToText((*dtypes)[i]));
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
  ReadTableCounts(reader, &config.min_tables, &config.max_tables);
  reader.Read("min_random_placement", &config.min_random_placement, {0, 1});
  reader.Read("max_random_placement", &config.max_random_placement, {0, 1});
  if (config.max_random_placement < config.min_random_placement) {
    reader.AddViolation("max_random_placement", "must be at least min_random_placement {}, got {}",
                        config.min_random_placement, config.max_random_placement);
  }
  reader.Read("max_start_offset", &config.max_start_offset, {2, 60'000});
  reader.Read("start_offset_unit_ms", &config.start_offset_unit_ms, {0, 1000});
  if (config.max_start_offset * config.start_offset_unit_ms > 60'000) {
    reader.AddViolation("start_offset_unit_ms", "start offsets may not exceed 60000 ms");
  }
  ReadWireDtypes(reader, &config.wire_dtypes);
  ReadInputDist(reader, config.max_tables, &config.input_dist);
  reader.ReadWord("cadence", &config.cadence);
  for (const char* key : {"max_start_offset", "start_offset_unit_ms"}) {
    if (config.cadence == Cadence::kBarrier || !reader.Has(key) || config.input_dist) continue;
    reader.AddViolation(key, "does not go with cadence {}", ToText(config.cadence));
  }
  ReadSettings(reader.Section("settings"), &config.settings);
  return config;
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

}  // namespace neuroshard
