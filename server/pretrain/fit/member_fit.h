// The fit of one network, epoch by epoch: Adam (Kingma and Ba, 2015) on mini-batches, by libtorch.
// For fit/ and its tests only.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "server/pretrain/fit/fit_checkpoint.h"
#include "server/pretrain/fit/torch_network.h"

namespace neuroshard {

// The fit of one member. The same arguments and state give the same epochs, bit by bit, on the same
// machine. Each object has tensors of its own, so several may run concurrently, each on one thread
// at a time.
class MemberFit {
 public:
  // All arguments must outlive it.
  MemberFit(const TrainingProblem& problem, const SampleSplit& split,
            const NetworkDefinition& network, const OptimizationConfig& config, std::uint64_t seed);

  // Runs one pass over the training samples in an order of (seed, epoch), computes the validation
  // loss, and updates the best weights and the learning rate. CANCELLED when `stop` is true:
  // `state` is then as before the epoch. INTERNAL when a loss is not finite, or libtorch fails.
  Status RunEpoch(const StopSignal& stop, MemberState& state);

 private:
  double LearningRate(const MemberState& state) const;
  StatusOr<double> TrainEpoch(const StopSignal& stop, MemberState& state);
  double ValidationLoss(const std::vector<float>& parameters) const;

  const SampleSplit& split_;
  const OptimizationConfig& config_;
  std::uint64_t seed_;
  double weight_columns_;
  TorchProblem problem_;
  TorchNetwork network_;
  std::vector<TorchBatch> validation_;
};

}  // namespace neuroshard
