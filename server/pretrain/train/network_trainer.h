// Training of one network of the NeuroShard paper.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "server/pretrain/data/training_problem.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/training_config.h"

namespace neuroshard {

struct FittedNetwork {
  TrainingProblem problem;  // standardised
  NetworkDefinition network;
  std::vector<float> weights;
  std::int64_t epochs = 0;
  std::int64_t best_epoch = 0;
  double best_validation_loss = 0;

  // [samples, outputs] in ms; what the network puts below 0 becomes 0, as the server has it.
  std::vector<double> Predict(const std::vector<std::int64_t>& samples) const;
  TensorFile File() const;
};

// The problem's weights and scale are set by `config` (loss, scale_targets). INVALID_ARGUMENT for
// fewer than two training samples or none for validation; otherwise the errors of RunFit.
StatusOr<FittedNetwork> TrainNetwork(TrainingProblem problem, NetworkDefinition network,
                                     const SampleSplit& split, const OptimizationConfig& config,
                                     const FitContext& context);

}  // namespace neuroshard
