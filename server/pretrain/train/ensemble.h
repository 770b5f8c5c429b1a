// Training of a network of any kind, from its problem to its manifest section, its file and its
// reports. It is fitted as an ensemble, one of the paper's as an ensemble of one, and reported on by
// its predictions of the samples that were held out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/networks/safetensors.h"
#include "server/pretrain/data/measured_problem.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/report/training_report.h"
#include "server/pretrain/train/interval_calibration.h"

namespace neuroshard {

// Probability that intervals hold a measurement.
inline constexpr double kIntervalCoverage = 0.9;

// A network to be trained: everything in which networks differ. What it points to must outlive it.
struct NetworkTask {
  NetworkKind kind = NetworkKind::kTableSum;
  // Returns the problem of all samples, in the units that a split of the records asks for.
  std::function<TrainingProblem(const SampleSplit& by_record)> problem;
  SampleSplit by_record;
  const TrainingConfig* config = nullptr;
  // Positions of the ranks where the problem's samples are ranks of records; null: samples are
  // records.
  const CollectiveRanks* ranks = nullptr;
  const TensorFile* start = nullptr;  // tensors of a model to go on from; null: random weights
  int start_members = 0;              // members of that model

  // Returns the optimization of compute or of communication.
  const OptimizationConfig& optimization() const {
    return SumsTables(kind) ? config->optimization : config->comm_optimization;
  }
};

// Returns the task of one of NeuroShard's networks: the configuration says how targets are weighed
// and scaled (loss, scale_targets).
NetworkTask PaperTask(NetworkKind kind, TrainingProblem problem, SampleSplit split,
                      const TrainingConfig& config);

// An ensemble of one network, fitted to one problem. Networks of the paper are ensembles of one.
struct EnsembleFit {
  // What the model's manifest will say, apart from the intervals. Layers are those of the
  // configuration.
  NetworkManifest manifest;
  SampleSplit by_record;
  TrainingProblem problem;  // standardised
  NetworkDefinition network;
  std::vector<std::vector<float>> starts;   // weights that it went on from; empty: random ones
  std::vector<std::vector<float>> members;  // weights by validation loss, the best first
  std::int64_t epochs = 0;                  // of the first member
  std::int64_t best_epoch = 0;
  const CollectiveRanks* ranks = nullptr;  // as in NetworkTask

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

// Fits an ensemble to one in `divisor` of the task's training records. Rows are standardized by them,
// or as in the model to go on from, except columns that never varied for it. Warns of columns that
// the network ignores, unless the fit is a point of a learning curve. FAILED_PRECONDITION when the
// model to go on from has other layers; otherwise the errors of RunFit.
StatusOr<EnsembleFit> FitEnsemble(const NetworkTask& task, const FitContext& context,
                                  std::int64_t divisor = 1);

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

// Adds the file of the task's fitted network, a report on each part and, where the configuration asks
// for it, the learning curve of each report that is no part of another: fits of 1/8, 1/4 and 1/2 of
// the training records, then the whole. Errors of FitEnsemble.
Status AddTrained(const NetworkTask& task, const EnsembleFit& fit,
                  const std::vector<HeldOutPart>& parts, const FitContext& context,
                  TrainingOutcome& outcome);

}  // namespace neuroshard
