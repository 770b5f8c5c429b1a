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

// Same records and config on the same machine: the same bytes, whatever the number of threads.
// Features that do not vary over the training samples are ignored by the network, whatever value
// they take later, and reported as a warning; the paper would divide them by 1e-6.
// FAILED_PRECONDITION when there are fewer than config.min_samples compute samples; a communication
// network with fewer is left out with a warning. Otherwise the errors of RunFit.
StatusOr<TrainingOutcome> TrainCostModel(const SelectedRecords& records,
                                         const TrainingConfig& config, const FitContext& context);

// One network: an ensemble of one. The problem's weights and scale are set by `config` (loss,
// scale_targets). INVALID_ARGUMENT for fewer than two training samples or none for validation;
// otherwise the errors of RunFit.
StatusOr<EnsembleFit> TrainNetwork(TrainingProblem problem, NetworkDefinition network,
                                   const SampleSplit& split, const OptimizationConfig& config,
                                   const FitContext& context);

}  // namespace neuroshard
