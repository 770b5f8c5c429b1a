// An ensemble of a network: its fit, its predictions, the report on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/networks/safetensors.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/data/training_problem.h"
#include "server/pretrain/data/universal_problem.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/report/training_outcome.h"
#include "server/pretrain/train/interval_calibration.h"

namespace neuroshard {

// Probability that intervals hold a measurement.
inline constexpr double kIntervalCoverage = 0.9;

// The purpose of a fit: the model, or a point of its learning curve.
enum class FitPurpose { kModel, kLearningCurve };

// Returns `config` for so many training samples: fewer epochs for very many and smaller batches for
// few (configs/pretrain.yaml).
OptimizationConfig ConfigForSamples(OptimizationConfig config, std::size_t samples);

struct EnsembleOptions {
  OptimizationConfig config;
  std::int64_t members = 1;
  FitPurpose purpose = FitPurpose::kModel;
  const TensorFile* start = nullptr;  // tensors of a model to go on from; null: random weights
  int start_members = 0;              // members of that model
  // Positions of the ranks where the problem's samples are ranks of records; null: samples are
  // records.
  const CollectiveRanks* ranks = nullptr;
};

// An ensemble of one network, fitted to one problem.
struct EnsembleFit {
  TrainingProblem problem;  // standardised
  NetworkDefinition network;
  std::vector<std::vector<float>> starts;   // weights that it went on from; empty: random ones
  std::vector<std::vector<float>> members;  // weights by validation loss, the best first
  std::int64_t epochs = 0;                  // of the first member
  std::int64_t best_epoch = 0;
  const CollectiveRanks* ranks = nullptr;  // as in EnsembleOptions

  // Predicts costs of the samples of records in ms by each of the members, or by other weights,
  // beside the measured ones: the total of a sample where that counts
  // (TrainingProblem::total_counts), else every output. Negative predictions become 0, as in
  // serving.
  EnsemblePredictions Predict(const std::vector<std::int64_t>& records) const;
  EnsemblePredictions PredictBy(const std::vector<std::vector<float>>& weights,
                                const std::vector<std::int64_t>& records) const;
  // Returns standardization and members, as serving reads them.
  TensorFile File() const;
};

// Fits options.members members to split.train. Rows are standardized by split.train, or as in the
// model to go on from, except columns that never varied for it. Warns of columns that the network
// ignores. FAILED_PRECONDITION when the model to go on from has other layers; otherwise the errors
// of RunFit.
StatusOr<EnsembleFit> FitEnsemble(TrainingProblem problem, NetworkDefinition network,
                                  const SampleSplit& split, const EnsembleOptions& options,
                                  const FitContext& context);

// Returns the weights of one more network per split, fitted as the ensemble was. Errors of RunFit.
StatusOr<std::vector<std::vector<float>>> FitOneToEach(const std::string& name,
                                                       const EnsembleFit& ensemble,
                                                       const OptimizationConfig& config,
                                                       const std::vector<SampleSplit>& splits,
                                                       const FitContext& context);

// Held-out records that are reported on together.
struct HeldOutPart {
  std::string name;  // as in NetworkReport
  std::string key;
  std::vector<std::int64_t> records;
  const IntervalManifest* interval = nullptr;  // null: the model gives none
  bool is_part = false;
  // Also reports the model to go on from, where there is one.
  bool reports_start = true;
  // Returns whether a record counts as learned from; empty: all do.
  std::function<bool(std::int64_t record)> counts = {};
};

// Returns the errors of what was said of held-out samples; the caller fills in the rest.
NetworkReport ReportOn(std::string name, std::string key, const EnsemblePredictions& said);

// Adds a report on each part.
void AddReports(const EnsembleFit& fit, const SampleSplit& by_record,
                const std::vector<HeldOutPart>& parts, TrainingOutcome& outcome);

// Adds, where the configuration asks for it, the learning curve of each report that is no part of
// another: fits of 1/8, 1/4 and 1/2 of the training records by `fit_to`, then `whole`, which was
// fitted to all. Errors of `fit_to`.
using FitTo = std::function<StatusOr<EnsembleFit>(
    const std::string& name, const SampleSplit& by_record, FitPurpose purpose)>;
Status AddLearningCurves(const EnsembleFit& whole, const SampleSplit& by_record,
                         const TrainingConfig& config, const std::vector<HeldOutPart>& parts,
                         const FitTo& fit_to, TrainingOutcome& outcome);

}  // namespace neuroshard
