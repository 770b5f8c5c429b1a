#include "server/pretrain/data/training_config.h"

#include <fmt/ranges.h>

#include <string_view>

#include "common/domain/fields.h"
#include "server/cost/feature_columns.h"

namespace neuroshard {

// What is said of a training.
NS_FIELDS(OptimizationConfig, loss, learning_rate, batch_samples, max_epochs, patience_epochs,
          schedule, learning_rate_decay, decay_patience_epochs, scale_targets, permute_ranks, seed);
NS_FIELDS(RecordFilter, cadence, batch_size, weight_dtype, optimizer, pooling_mode, compute_kernel,
          weighted, device, network);
NS_FIELDS(TrainingConfig, preset, compute_outputs, members, cost_of_series, held_out_tables,
          min_samples);

namespace {

// The members that NS_FIELDS lists by their names, without those that are not there.
template <typename T>
std::map<std::string, std::string> TextsOf(const T& values) {
  std::map<std::string, std::string> texts;
  ForEachField(values, [&](const char* name, const auto& value) {
    if constexpr (requires { value.has_value(); }) {
      if (value) texts[name] = fmt::format("{}", *value);
    } else if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>) {
      texts[name] = ToText(value);
    } else {
      texts[name] = fmt::format("{}", value);
    }
  });
  return texts;
}

constexpr std::int64_t kMaxEpochs = 1'000'000;
constexpr std::int64_t kMaxLayerWidth = 4096;
constexpr std::int64_t kMaxLayers = 16;
constexpr std::int64_t kMaxThreads = 256;
constexpr std::int64_t kMaxMembers = 16;

void ReadWidths(ConfigReader& reader, std::string_view key, std::vector<int>* widths) {
  std::vector<std::int64_t> values(widths->begin(), widths->end());
  reader.Read(key, &values, {1, kMaxLayerWidth});
  if (values.empty() || static_cast<std::int64_t>(values.size()) > kMaxLayers) {
    reader.AddViolation(key, "must list 1 to {} widths, got {}", kMaxLayers, values.size());
  }
  widths->assign(values.begin(), values.end());
}

void ReadTransforms(ConfigReader reader, std::map<std::string, std::string>* transforms) {
  for (const std::string& feature : NeuroShardFeatureNames()) {
    if (!reader.Has(feature)) continue;
    std::string transform;
    reader.Read(feature, &transform);
    if (transform == "log1p") {
      (*transforms)[feature] = transform;
    } else if (transform == "none") {
      transforms->erase(feature);
    } else {
      reader.AddViolation(feature, "must be one of none, log1p, got \"{}\"", transform);
    }
  }
}

template <typename E>
void ReadWordFilter(ConfigReader& reader, std::string_view key, std::optional<std::string>* word) {
  if (!reader.Has(key)) return;
  E value = kWords<E>.front().value;
  reader.ReadWord(key, &value);
  *word = std::string(ToText(value));
}

void ReadFilter(ConfigReader reader, RecordFilter* filter) {
  if (reader.Has("batch_size")) {
    reader.Read("batch_size", &filter->batch_size.emplace(), {1, std::int64_t{1} << 40});
  }
  ReadWordFilter<DataType>(reader, "weight_dtype", &filter->weight_dtype);
  ReadWordFilter<Optimizer>(reader, "optimizer", &filter->optimizer);
  ReadWordFilter<PoolingMode>(reader, "pooling_mode", &filter->pooling_mode);
  ReadWordFilter<ComputeKernel>(reader, "compute_kernel", &filter->compute_kernel);
  if (reader.Has("weighted")) reader.Read("weighted", &filter->weighted.emplace());
  if (reader.Has("device")) reader.Read("device", &filter->device.emplace());
  if (reader.Has("network")) reader.Read("network", &filter->network.emplace());
  reader.ReadWord("cadence", &filter->cadence);
}

void ReadOptimization(ConfigReader& reader, OptimizationConfig* optimization) {
  reader.Read("learning_rate", &optimization->learning_rate, {1e-8, 1.0});
  reader.Read("batch_samples", &optimization->batch_samples, {1, 1'000'000});
  reader.Read("max_epochs", &optimization->max_epochs, {1, kMaxEpochs});
  reader.Read("patience_epochs", &optimization->patience_epochs, {1, kMaxEpochs});
  reader.ReadWord("schedule", &optimization->schedule);
  reader.Read("learning_rate_decay", &optimization->learning_rate_decay, {0.01, 1.0});
  reader.Read("decay_patience_epochs", &optimization->decay_patience_epochs, {1, kMaxEpochs});
}

// Refuses options of the other kind of networks.
void CheckPreset(ConfigReader& reader, const TrainingConfig& config) {
  const bool universal = config.preset == TrainingPreset::kUniversal;
  const bool log_ratio = config.optimization.loss == TrainingLoss::kLogRatio;
  if (universal != log_ratio) {
    reader.AddViolation("loss", universal ? "must be log_ratio for the universal networks"
                                          : "log_ratio is for the universal networks only");
  }
  if (universal && config.head_hidden.size() != 1) {
    reader.AddViolation("head_hidden", "must list one width for the universal networks");
  }
  if (!universal && config.learning_curve) {
    reader.AddViolation("learning_curve", "is for the universal networks only");
  }
}

TrainingConfig UniversalPreset() {
  TrainingConfig config;
  config.table_hidden = {96, 48};
  config.head_hidden = {48};
  config.comm_hidden = {24, 16};
  OptimizationConfig& compute = config.optimization;
  compute.loss = TrainingLoss::kLogRatio;
  compute.schedule = LearningRateSchedule::kCosine;
  compute.learning_rate = 2e-3;
  compute.batch_samples = 64;
  compute.max_epochs = 150;
  compute.patience_epochs = compute.max_epochs;
  compute.scale_targets = false;
  compute.permute_ranks = false;
  config.comm_optimization = compute;
  config.comm_optimization.learning_rate = 3e-3;
  config.comm_optimization.batch_samples = 512;  // ranks
  config.comm_optimization.max_epochs = 200;
  config.comm_optimization.patience_epochs = 200;
  return config;
}

}  // namespace

TrainingConfig PresetConfig(TrainingPreset preset) {
  if (preset == TrainingPreset::kUniversal) return UniversalPreset();
  TrainingConfig config;
  config.preset = preset;
  config.held_out_tables = 0;
  config.members = 1;
  if (preset == TrainingPreset::kPerCount) {
    config.transforms = {{"dim", "log1p"}, {"pooling_factor", "log1p"}, {"row", "log1p"}};
    config.comm_optimization = config.optimization;
    return config;
  }
  config.optimization.loss = TrainingLoss::kMse;
  config.optimization.learning_rate = 1e-3;
  config.optimization.batch_samples = 512;
  config.optimization.patience_epochs = config.optimization.max_epochs;
  config.optimization.learning_rate_decay = 1;
  config.optimization.scale_targets = false;
  config.optimization.permute_ranks = false;
  config.compute_outputs = ComputeOutputs::kTotal;
  config.table_hidden = {128, 32};
  config.comm_optimization = config.optimization;
  return config;
}

StatusOr<TrainingConfig> ReadTrainingConfig(ConfigReader reader) {
  TrainingPreset preset = TrainingPreset::kUniversal;
  reader.ReadWord("preset", &preset);
  TrainingConfig config = PresetConfig(preset);
  OptimizationConfig& optimization = config.optimization;
  reader.ReadWord("loss", &optimization.loss);
  ReadOptimization(reader, &optimization);
  reader.Read("scale_targets", &optimization.scale_targets);
  reader.Read("permute_ranks", &optimization.permute_ranks);
  reader.Read("seed", &optimization.seed);
  if (preset != TrainingPreset::kUniversal) config.comm_optimization = optimization;
  config.comm_optimization.seed = optimization.seed;
  ConfigReader comm = reader.Section("comm");
  ReadOptimization(comm, &config.comm_optimization);
  ReadTransforms(reader.Section("transforms"), &config.transforms);
  reader.ReadWord("compute_outputs", &config.compute_outputs);
  ReadWidths(reader, "table_hidden", &config.table_hidden);
  ReadWidths(reader, "head_hidden", &config.head_hidden);
  ReadWidths(reader, "comm_hidden", &config.comm_hidden);
  reader.Read("representation", &config.representation, {1, kMaxLayerWidth});
  reader.Read("members", &config.members, {1, kMaxMembers});
  reader.Read("held_out_tables", &config.held_out_tables, {0.0, 0.5});
  reader.Read("cache_bytes", &config.cache_bytes, {0, std::int64_t{1} << 40});
  reader.Read("learning_curve", &config.learning_curve);
  reader.ReadWord("cost_of_series", &config.cost_of_series);
  reader.Read("min_samples", &config.min_samples, {10, 1'000'000'000});
  reader.Read("min_compute_tau", &config.min_compute_tau, {-1.0, 1.0});
  reader.Read("threads", &config.threads, {0, kMaxThreads});
  ReadFilter(reader.Section("records"), &config.records);
  CheckPreset(reader, config);
  NS_RETURN_IF_ERROR(reader.Finish());
  return config;
}

std::map<std::string, std::string> RecordFilter::Chosen() const { return TextsOf(*this); }

std::map<std::string, std::string> DescribeTrainingConfig(const TrainingConfig& config) {
  std::map<std::string, std::string> values = TextsOf(config);
  values.merge(TextsOf(config.optimization));
  for (const auto& [feature, transform] : config.transforms) {
    values["transforms." + feature] = transform;
  }
  for (const auto& [key, value] : config.records.Chosen()) values["records." + key] = value;
  return values;
}

}  // namespace neuroshard
