// Fits the members of an ensemble to the end: epochs, early stop, progress, checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "server/pretrain/fit/fit_checkpoint.h"
#include "server/pretrain/fit/member_fit.h"

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
  // Once, after the last epoch; `reason` is a sentence for people.
  virtual void OnFinished(const EpochReport& last, const std::string& reason) = 0;
  virtual void OnWarning(const std::string& message) = 0;
};

// What a training happens in.
struct FitContext {
  const StopSignal* stop = nullptr;
  WorkerTeam* team = nullptr;
  TrainingObserver* observer = nullptr;
  CheckpointFolder* checkpoints = nullptr;  // null: none
};

struct FitTask {
  std::string name;  // of the network, for messages
  const FitProblem* problem = nullptr;
  const SampleSplit* split = nullptr;
  const NetworkGraph* graph = nullptr;
  const OptimizationConfig* config = nullptr;
  int members = 1;  // of different seeds
  // Where every member begins; empty: random weights of its seed.
  std::vector<std::vector<float>> initial_parameters;
  std::vector<SampleSplit> member_splits = {};  // instead of `split`, where each has its own
};

// The members' last states. The same task gives the same bits, whatever the team and however often
// it was interrupted. CANCELLED when stopped, with a checkpoint left; INTERNAL when a loss is not
// finite; UNAVAILABLE when a checkpoint cannot be written.
StatusOr<std::vector<MemberState>> RunFit(const FitTask& task, const FitContext& context);

}  // namespace neuroshard
