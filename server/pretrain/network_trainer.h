// Trains the networks of NeuroShard section 3: Adam, mini-batches, the weights of the best
// validation epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/trained_network.h"
#include "server/pretrain/training_config.h"
#include "server/pretrain/training_problem.h"

namespace neuroshard {

struct NetworkShape {
  std::vector<int>
      row_hidden;  // widths of the layers each row goes through, ReLU after each; empty: none
  std::vector<int> head_hidden;  // hidden widths of the head
};

struct TrainingResult {
  TrainedNetwork network;
  std::int64_t epochs = 0;
  std::int64_t best_epoch = 0;
  double best_validation_loss = 0;
};

// Same problem, split, shape and config on the same machine: the same bytes, whatever the team's
// size. Features that do not
// vary over the training samples are ignored by the network whatever value they take later (and
// reported as a warning), instead of being divided by 1e-6. INTERNAL when the loss stops being
// finite, and the other errors of RunFit.
StatusOr<TrainingResult> TrainNetwork(const TrainingProblem& problem, const SampleSplit& split,
                                      const NetworkShape& shape, const OptimizationConfig& config,
                                      const FitContext& context);

}  // namespace neuroshard
