// The fit of one network, epoch by epoch: Adam (Kingma and Ba, 2015) on mini-batches, by libtorch.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/data/training_problem.h"
#include "server/pretrain/fit/network_definition.h"

namespace neuroshard {

// State on which the next epoch depends, besides problem, split, network and configuration.
struct MemberState {
  std::vector<float> parameters;
  std::vector<float> best_parameters;  // of the best validation epoch
  std::vector<float> first_moment;     // Adam's
  std::vector<float> second_moment;
  std::int64_t steps = 0;
  std::int64_t epoch = 0;  // epochs done
  std::int64_t best_epoch = 0;
  std::int64_t decayed_epoch = 0;
  double learning_rate = 0;
  double train_loss = 0;
  double validation_loss = 0;
  double best_validation_loss = std::numeric_limits<double>::infinity();

  bool operator==(const MemberState&) const = default;
};

MemberState InitialState(std::vector<float> parameters, double learning_rate);

// The fit of one member. The same arguments and state give the same epochs, bit by bit, on the same
// machine. Each object has tensors of its own, so several may run concurrently, each on one thread
// at a time.
class MemberFit {
 public:
  // All arguments must outlive it.
  MemberFit(const TrainingProblem& problem, const SampleSplit& split,
            const NetworkDefinition& network, const OptimizationConfig& config, std::uint64_t seed);
  ~MemberFit();

  // Runs one pass over the training samples in an order of (seed, epoch), computes the validation
  // loss, and updates the best weights and the learning rate. CANCELLED when `stop` is true:
  // `state` is then as before the epoch. INTERNAL when a loss is not finite, or libtorch fails.
  Status RunEpoch(const StopSignal& stop, MemberState& state);

 private:
  class Tensors;

  double LearningRate(const MemberState& state) const;
  StatusOr<double> TrainEpoch(const StopSignal& stop, MemberState& state);
  double ValidationLoss(const std::vector<float>& parameters) const;

  const TrainingProblem& problem_;
  const SampleSplit& split_;
  const OptimizationConfig& config_;
  std::uint64_t seed_;
  std::unique_ptr<Tensors> tensors_;
};

}  // namespace neuroshard
