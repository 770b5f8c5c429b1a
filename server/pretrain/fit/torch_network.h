// Batches, networks and losses in libtorch. For fit/ and its tests only: no other header of ours
// includes libtorch.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/random.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/data/training_problem.h"
#include "server/pretrain/fit/network_definition.h"

namespace neuroshard {

// Samples of a problem, laid out for one pass.
struct TorchBatch {
  at::Tensor rows;           // [rows, columns]; those that samples share are there once
  at::Tensor row_of;         // positions in rows, sample by sample; not defined: sample i is row i
  at::Tensor begin;          // where each sample begins in row_of
  at::Tensor sample_values;  // [samples, sample columns]
  at::Tensor targets;        // [samples, outputs (+ 1 for the total)]: ms, or ln(ms + floor)
  at::Tensor weights;        // as targets, of their errors
};

// A problem as tensors. For one thread at a time.
class TorchProblem {
 public:
  // `problem` must outlive it. Sets libtorch and its BLAS to one thread in this process: the
  // matrices are small, the members of an ensemble run in parallel, and a sum split over threads
  // would depend on the number of cores.
  TorchProblem(const TrainingProblem& problem, TrainingLoss loss);

  // Returns a batch. `permutations` permutes interchangeable ranks at random; null: they stay as
  // they are.
  TorchBatch Batch(std::span<const std::int64_t> samples, Random* permutations);

  // Returns costs in ms for outputs of a network.
  at::Tensor CostsOf(const at::Tensor& outputs) const { return outputs * scale_; }

  // Returns the sum over samples and targets of weight * loss(cost, target): (cost - target)^2, or
  // |ln((cost + floor) / (target + floor))| for TrainingLoss::kLogRatio.
  at::Tensor LossOf(const at::Tensor& outputs, const TorchBatch& batch) const;

 private:
  void AddRows(std::span<const std::int64_t> samples, TorchBatch& batch);
  void Permute(Random& random, TorchBatch& batch) const;

  const TrainingProblem& problem_;
  TrainingLoss loss_;
  bool one_row_each_;
  at::Tensor rows_;
  at::Tensor sample_values_;
  at::Tensor targets_;
  at::Tensor weights_;
  at::Tensor scale_;
  // Place of each row in the batch of that number.
  std::vector<std::uint64_t> placed_in_;
  std::vector<std::int64_t> place_;
  std::uint64_t batch_number_ = 0;
};

// A network as an autograd expression. `network` must outlive it. Immutable, so thread-safe.
class TorchNetwork {
 public:
  explicit TorchNetwork(const NetworkDefinition& network);

  // WeightsOf of tensors, [num_values] each.
  at::Tensor Weights(const at::Tensor& parameters) const;

  // Returns the network's outputs, [samples, outputs], by weights [num_values].
  at::Tensor Forward(const at::Tensor& weights, const TorchBatch& batch) const;

 private:
  const NetworkDefinition& network_;
  std::vector<std::int64_t> sizes_;  // of its tensors
  at::Tensor non_negative_;          // of [num_values], where weights may not be negative
  at::Tensor signs_;                 // of kUniversalComm: 1 or -1 for each weight
};

at::Tensor ToTensor(std::span<const float> values);
std::vector<float> ToVector(const at::Tensor& tensor);

}  // namespace neuroshard
