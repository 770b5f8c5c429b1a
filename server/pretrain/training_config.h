// How a network is trained. configs/pretrain.yaml documents every field.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

enum class TrainingLoss {
  kMse,       // mean squared error in ms^2: NeuroShard's
  kRelative,  // mean squared error relative to the measured cost: small costs count as much as
              // large ones
};

template <>
inline constexpr std::array kWords<TrainingLoss> = {
    Word<TrainingLoss>{TrainingLoss::kMse, "mse"},
    Word<TrainingLoss>{TrainingLoss::kRelative, "relative"}};

enum class ComputeOutputs {
  kAuto,   // forward and backward when every record tells them apart, otherwise the total
  kTotal,  // the total only: NeuroShard's
};

template <>
inline constexpr std::array kWords<ComputeOutputs> = {
    Word<ComputeOutputs>{ComputeOutputs::kAuto, "auto"},
    Word<ComputeOutputs>{ComputeOutputs::kTotal, "total"}};

enum class TrainingPreset {
  kDefault,     // what is most accurate on few thousand samples of small costs
  kNeuroshard,  // exactly the paper's training
};

template <>
inline constexpr std::array kWords<TrainingPreset> = {
    Word<TrainingPreset>{TrainingPreset::kDefault, "default"},
    Word<TrainingPreset>{TrainingPreset::kNeuroshard, "neuroshard"}};

struct OptimizationConfig {
  TrainingLoss loss = TrainingLoss::kRelative;
  double learning_rate = 2e-3;
  std::int64_t batch_samples = 32;
  std::int64_t max_epochs = 1000;
  std::int64_t patience_epochs =
      150;                           // stop after this many epochs without a better validation loss
  double learning_rate_decay = 0.5;  // 1: never decays
  std::int64_t decay_patience_epochs = 30;  // epochs without improvement before each decay
  bool scale_targets =
      true;  // learn costs in units of their mean; folded into the last layer afterwards
  bool permute_ranks =
      true;  // communication: train on random permutations of interchangeable ranks
  std::uint64_t seed = 0;

  bool operator==(const OptimizationConfig&) const = default;
};

// Which records of the store to learn from. Absent: all, which must then agree.
struct RecordFilter {
  std::optional<std::int64_t> batch_size;
  std::optional<std::string> weight_dtype;
  std::optional<std::string> optimizer;
  std::optional<std::string> pooling_mode;
  std::optional<bool> weighted;
  std::optional<std::string> device;

  bool operator==(const RecordFilter&) const = default;
};

struct TrainingConfig {
  TrainingPreset preset = TrainingPreset::kDefault;
  OptimizationConfig optimization;
  std::map<std::string, std::string> transforms;  // compute feature -> "log1p"
  ComputeOutputs compute_outputs = ComputeOutputs::kAuto;
  std::vector<int> table_hidden = {128, 64, 32};  // NeuroShard section 3: 20-128-32
  std::vector<int> head_hidden = {64};            // 32-64-1
  std::vector<int> comm_hidden = {128, 64, 32, 16};
  std::int64_t min_samples = 20;  // fewer of a kind: no network of that kind
  std::int64_t threads = 0;       // 0: one for each core; the result does not depend on it
  RecordFilter records;

  bool operator==(const TrainingConfig&) const = default;
};

// The values of a preset, before a file overrides any of them.
TrainingConfig PresetConfig(TrainingPreset preset);

// Reads a training configuration (configs/pretrain.yaml has every key). Unknown keys and values out
// of range are INVALID_ARGUMENT, all at once with their paths; NOT_FOUND when there is no such
// file.
StatusOr<TrainingConfig> ReadTrainingConfig(const std::string& path);

// The same from a text; `source` stands for the file name in errors.
StatusOr<TrainingConfig> ParseTrainingConfig(const std::string& text, const std::string& source);

// Every effective value by its key, for provenance.
std::map<std::string, std::string> DescribeTrainingConfig(const TrainingConfig& config);

}  // namespace neuroshard
