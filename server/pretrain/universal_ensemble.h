// What the trainings of both universal networks share: fitting an ensemble, asking it, and
// reporting on it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/models/safetensors.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/interval_calibration.h"
#include "server/pretrain/network_report.h"
#include "server/pretrain/training_config.h"
#include "server/pretrain/universal_problem.h"

namespace neuroshard {

// The probability that intervals are made for.
inline constexpr double kIntervalCoverage = 0.9;

// What a fit is for: the model, or a point of its learning curve.
enum class FitPurpose { kModel, kLearningCurve };

// The weights of an ensemble's members, as they are used, by validation loss.
struct FittedEnsemble {
  std::vector<std::vector<float>> weights;
  std::int64_t epochs = 0;  // of the first member
  std::int64_t best_epoch = 0;
};

struct EnsembleTask {
  std::string name;
  const UniversalProblem* problem = nullptr;
  const SampleSplit* split = nullptr;
  const NetworkGraph* graph = nullptr;
  OptimizationConfig config;
  std::int64_t members = 1;
  // Weights to begin at; empty: `fresh` parameters of each member's own seed.
  std::vector<std::vector<float>> starts;
  std::function<std::vector<float>(const NetworkGraph&, Random&)> fresh;
};

// With fewer epochs for very many samples, and smaller batches for few (configs/pretrain.yaml).
// Errors of RunFit.
StatusOr<FittedEnsemble> FitEnsemble(const EnsembleTask& task, const FitContext& context);

// A member for each split, at least one, in their order; task.split and task.members are not used.
// Errors of RunFit.
StatusOr<std::vector<std::vector<float>>> FitOneToEach(EnsembleTask task,
                                                       const std::vector<SampleSplit>& splits,
                                                       const FitContext& context);

// Total costs in ms of samples by every member, and as measured.
EnsemblePredictions PredictEnsemble(const UniversalProblem& problem, const NetworkGraph& graph,
                                    const std::vector<std::vector<float>>& members,
                                    const std::vector<std::int64_t>& samples);

// `num_ranks` of each prediction, where they are of collectives.
NetworkReport ReportOn(std::string name, std::string key, const EnsemblePredictions& predictions,
                       const std::optional<IntervalManifest>& interval, std::int64_t samples,
                       const std::vector<int>& num_ranks = {});

// How the model to go on from is on the samples of `now`.
NetworkReport ReportBefore(const NetworkReport& now, const EnsemblePredictions& before);

// Standardises by what `train` shows; or as the file of a model to go on from does, whose columns
// without weight in `first_weight` have never varied and get what `train` shows, which changes
// nothing yet. Warns of columns that the network ignores, unless `observer` is null.
void StandardiseProblem(const std::string& name, const std::vector<std::int64_t>& train,
                        const TensorFile* start, const std::string& first_weight,
                        UniversalProblem& problem, TrainingObserver* observer);

// The weights of each member of a model to go on from. FAILED_PRECONDITION when one is empty: other
// layers than the configuration's.
StatusOr<std::vector<std::vector<float>>> StartWeights(
    int members, const std::string& name, const std::function<std::vector<float>(int)>& read);

// feature_mean and feature_std.
void AddStandardisation(const Standardisation& standardisation, TensorFile& file);

// first, hidden..., last.
std::vector<std::int64_t> LayersOf(std::int64_t first, const std::vector<int>& hidden,
                                   std::int64_t last);

}  // namespace neuroshard
