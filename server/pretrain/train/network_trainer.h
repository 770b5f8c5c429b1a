// Training of one network of the NeuroShard paper: an ensemble of one.
#pragma once

#include "common/base/status.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/data/training_problem.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/train/ensemble.h"

namespace neuroshard {

// The problem's weights and scale are set by `config` (loss, scale_targets). INVALID_ARGUMENT for
// fewer than two training samples or none for validation; otherwise the errors of RunFit.
StatusOr<EnsembleFit> TrainNetwork(TrainingProblem problem, NetworkDefinition network,
                                   const SampleSplit& split, const OptimizationConfig& config,
                                   const FitContext& context);

}  // namespace neuroshard
