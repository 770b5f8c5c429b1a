// Training of the NeuroShard paper's networks (section 3): one for compute, and one for each
// direction and rank count of all-to-alls.
#pragma once

#include "common/base/status.h"
#include "server/pretrain/data/record_selection.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/report/training_outcome.h"
#include "server/pretrain/train/ensemble.h"

namespace neuroshard {

// Trains a model. The same records and config give the same bytes on the same machine, whatever the
// number of threads. Networks ignore features that do not vary over the training samples, with a
// warning; the paper divides them by 1e-6. FAILED_PRECONDITION when there are fewer than
// config.min_samples compute samples; a communication network with fewer is left out with a
// warning. Otherwise the errors of RunFit.
StatusOr<TrainingOutcome> TrainCostModel(const SelectedRecords& records,
                                         const TrainingConfig& config, const FitContext& context);

// Trains one network, an ensemble of one. `config` sets the problem's weights and scale (loss,
// scale_targets). INVALID_ARGUMENT for fewer than two training samples or none for validation;
// otherwise the errors of RunFit.
StatusOr<EnsembleFit> TrainNetwork(TrainingProblem problem, NetworkDefinition network,
                                   const SampleSplit& split, const OptimizationConfig& config,
                                   const FitContext& context);

}  // namespace neuroshard
