// One network on its way from random weights to fitted ones, epoch by epoch.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "server/pretrain/fit/adam.h"
#include "server/pretrain/fit/batch_builder.h"
#include "server/pretrain/fit/fit_batch.h"
#include "server/pretrain/fit/fit_problem.h"
#include "server/pretrain/fit/graph_pass.h"
#include "server/pretrain/fit/network_graph.h"
#include "server/pretrain/fit/worker_team.h"
#include "server/pretrain/training_config.h"
#include "server/pretrain/training_problem.h"

namespace neuroshard {

// All that the next epoch depends on, besides problem, split, graph and configuration.
struct MemberState {
  std::vector<float> parameters;
  std::vector<float> best_parameters;  // of the best validation epoch
  AdamState adam;
  double learning_rate = 0;
  std::int64_t epoch = 0;  // epochs done
  std::int64_t best_epoch = 0;
  std::int64_t decayed_epoch = 0;
  double train_loss = 0;
  double validation_loss = 0;
  double best_validation_loss = std::numeric_limits<double>::infinity();

  bool operator==(const MemberState&) const = default;
};

MemberState InitialState(const NetworkGraph& graph, const OptimizationConfig& config,
                         std::uint64_t seed);

class MemberFit {
 public:
  // All must outlive it. The same arguments and state give the same epochs, bit by bit, whatever
  // the size of the team.
  MemberFit(const FitProblem& problem, const SampleSplit& split, const NetworkGraph& graph,
            const OptimizationConfig& config, std::uint64_t seed);

  // One pass over the training samples in an order of (seed, epoch), the validation loss after it,
  // and what that means for the best weights and the learning rate. CANCELLED when `stop` says so:
  // `state` is then as it was before the epoch. INTERNAL when a loss is not finite.
  Status RunEpoch(const StopSignal& stop, WorkerTeam& team, MemberState& state);

 private:
  // One thread's share of a batch.
  struct Slice {
    Slice(const FitProblem& problem, const NetworkGraph& graph)
        : builder(problem), pass(graph), gradient(graph.num_parameters()) {}

    BatchBuilder builder;
    FitBatch batch;
    GraphPass pass;
    std::vector<float> output_gradient;
    std::vector<float> gradient;
    double loss = 0;
  };

  void RunSlice(std::span<const std::int64_t> samples, std::size_t batch_size,
                std::uint64_t permutation_seed, const std::vector<float>& weights, Slice& slice);
  double TrainBatch(std::span<const std::int64_t> samples, std::uint64_t permutation_seed,
                    WorkerTeam& team, MemberState& state);
  double LearningRate(const MemberState& state) const;
  double ValidationLoss(WorkerTeam& team, const std::vector<float>& parameters);

  const FitProblem& problem_;
  const SampleSplit& split_;
  const NetworkGraph& graph_;
  const OptimizationConfig& config_;
  std::uint64_t seed_;
  std::vector<std::unique_ptr<Slice>> slices_;
  std::vector<float> gradient_;
  std::vector<float> weights_;
  std::vector<FitBatch> validation_;
  std::vector<double> validation_losses_;
};

}  // namespace neuroshard
