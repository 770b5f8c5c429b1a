// The fit of an ensemble: epochs of all members, early stopping, progress, checkpoints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/data/training_problem.h"
#include "server/pretrain/fit/fit_checkpoint.h"
#include "server/pretrain/fit/network_definition.h"

namespace neuroshard {

struct EpochReport {
  std::string network;
  std::int64_t epoch = 0;  // from 1
  std::int64_t max_epochs = 0;
  // Means over the members.
  double train_loss = 0;
  double validation_loss = 0;
  double best_validation_loss = 0;
  std::int64_t best_epoch = 0;  // of the first member
};

class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void OnEpoch(const EpochReport& report) = 0;
  // Called once, after the last epoch; `reason` is a sentence for people.
  virtual void OnFinished(const EpochReport& last, const std::string& reason) = 0;
  virtual void OnWarning(const std::string& message) = 0;
};

// Environment of a training.
struct FitContext {
  const StopSignal* stop = nullptr;
  int threads = 1;  // at most so many members run concurrently
  TrainingObserver* observer = nullptr;
  CheckpointFolder* checkpoints = nullptr;  // null: none
};

struct FitTask {
  std::string name;  // of the network, for messages
  const TrainingProblem* problem = nullptr;
  const NetworkDefinition* network = nullptr;
  const OptimizationConfig* config = nullptr;
  // Split and initial parameters of each member. The order of member i's samples has the
  // configuration's seed + i.
  std::vector<const SampleSplit*> splits;
  std::vector<std::vector<float>> initial_parameters;
};

// Returns the members' last states. The same task gives the same bits on the same machine, however
// many threads there are and however often it was interrupted. CANCELLED when stopped, with a
// checkpoint left; INTERNAL when a loss is not finite; UNAVAILABLE when a checkpoint cannot be
// written.
StatusOr<std::vector<MemberState>> RunFit(const FitTask& task, const FitContext& context);

// Returns the predictions of a trained network, [samples, outputs] in ms, by weights as WeightsOf
// gives them.
std::vector<double> PredictCosts(const TrainingProblem& problem, const NetworkDefinition& network,
                                 std::span<const float> weights,
                                 std::span<const std::int64_t> samples);

}  // namespace neuroshard
