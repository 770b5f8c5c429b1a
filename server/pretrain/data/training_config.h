// Training configuration. configs/pretrain.yaml documents every field.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/domain/vocabulary.h"
#include "common/text/config_reader.h"

namespace neuroshard {

enum class TrainingLoss {
  kMse,       // mean squared error in ms^2: NeuroShard's
  kRelative,  // mean squared error relative to the measured cost: small costs count as much as
              // large ones
  kLogRatio,  // mean |ln(predicted / measured)|: robust to outliers; of the universal networks,
              // whose predictions are above 0
};

NS_WORDS(TrainingLoss, {kMse, "mse"}, {kRelative, "relative"}, {kLogRatio, "log_ratio"});

enum class LearningRateSchedule {
  kPlateau,  // falls by a factor when the validation loss has not improved for some epochs
  kCosine,   // falls from learning_rate to 0 over max_epochs as half a cosine does
};

NS_WORDS(LearningRateSchedule, {kPlateau, "plateau"}, {kCosine, "cosine"});

enum class ComputeOutputs {
  kAuto,   // forward and backward when every record tells them apart, otherwise the total
  kTotal,  // the total only: NeuroShard's
};

NS_WORDS(ComputeOutputs, {kAuto, "auto"}, {kTotal, "total"});

enum class TrainingPreset {
  kUniversal,   // one network for all conditions, one for all collectives
  kPerCount,    // NeuroShard's networks, trained for small relative errors
  kNeuroshard,  // exactly the paper's training
};

NS_WORDS(TrainingPreset, {kUniversal, "universal"}, {kPerCount, "per_count"},
         {kNeuroshard, "neuroshard"});

struct OptimizationConfig {
  TrainingLoss loss = TrainingLoss::kRelative;
  double learning_rate = 2e-3;
  std::int64_t batch_samples = 32;
  std::int64_t max_epochs = 1000;
  std::int64_t patience_epochs =
      150;  // stop after this many epochs without a better validation loss
  LearningRateSchedule schedule = LearningRateSchedule::kPlateau;
  double learning_rate_decay = 0.5;         // plateau: 1: never decays
  std::int64_t decay_patience_epochs = 30;  // epochs without improvement before each decay
  bool scale_targets =
      true;  // learn costs in units of their mean; folded into the last layer afterwards
  bool permute_ranks =
      true;  // communication: train on random permutations of interchangeable ranks
  std::uint64_t seed = 0;

  bool operator==(const OptimizationConfig&) const = default;
};

// Filter of the records of the store. Absent fields keep all, which must then agree. Collectives
// have one cadence.
struct RecordFilter {
  std::optional<std::int64_t> batch_size;
  std::optional<std::string> weight_dtype;
  std::optional<std::string> optimizer;
  std::optional<std::string> pooling_mode;
  std::optional<std::string> compute_kernel;
  std::optional<bool> weighted;
  std::optional<std::string> device;
  std::optional<std::string> network;  // of all ranks: an interface, address or network
  Cadence cadence = Cadence::kBarrier;

  // Returns every condition that is chosen, by its key.
  std::map<std::string, std::string> Chosen() const;

  bool operator==(const RecordFilter&) const = default;
};

struct TrainingConfig {
  TrainingPreset preset = TrainingPreset::kUniversal;
  OptimizationConfig optimization;
  OptimizationConfig comm_optimization;           // of communication
  std::map<std::string, std::string> transforms;  // compute feature -> "log1p"; not universal
  ComputeOutputs compute_outputs = ComputeOutputs::kAuto;  // not universal
  std::vector<int> table_hidden = {128, 64, 32};           // NeuroShard section 3: 20-128-32
  std::vector<int> head_hidden = {64};                     // 32-64-1
  std::vector<int> comm_hidden = {128, 64, 32, 16};
  // Universal networks only.
  std::int64_t representation = 24;  // width of what is summed over shards
  std::int64_t members = 4;          // of the ensemble
  double held_out_tables = 0.02;     // share of the tables that no training sample has
  std::int64_t cache_bytes = 0;      // of the device, for features; 0: not known
  // Trains also on 1/8, 1/4 and 1/2 of the training samples, for the report. Not when going on from
  // a model.
  bool learning_curve = false;

  // Cost of a record, and of the repeats of a sample.
  SeriesCost cost_of_series = SeriesCost::kMedian;

  std::int64_t min_samples = 20;  // fewer of a kind: no network of that kind
  // Least Kendall tau of compute on held-out samples: a model below it is marked as unusable, and
  // planners refuse it.
  double min_compute_tau = 0.8;
  std::int64_t threads = 0;  // 0: one for each core; the result does not depend on it
  RecordFilter records;

  bool operator==(const TrainingConfig&) const = default;
};

// Returns the values of a preset, before a file overrides them.
TrainingConfig PresetConfig(TrainingPreset preset);

// Reads a training configuration (configs/pretrain.yaml has every key). Unknown keys and values out
// of range are INVALID_ARGUMENT, all at once with their paths.
StatusOr<TrainingConfig> ReadTrainingConfig(ConfigReader reader);

// Returns every effective value by its key, for provenance.
std::map<std::string, std::string> DescribeTrainingConfig(const TrainingConfig& config);

}  // namespace neuroshard
