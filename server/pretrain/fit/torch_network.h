// Batches, networks and losses as libtorch computes them. For fit/ and its tests only: the one
// header of ours with libtorch in it.
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
  // `problem` must outlive it. Tells libtorch and its BLAS to use one thread in this process: the
  // matrices are small, the members of an ensemble are the parallelism, and a sum that is split
  // over threads would depend on the machine's cores.
  TorchProblem(const TrainingProblem& problem, TrainingLoss loss);

  // `permutations`: permutes interchangeable ranks at random; null: leaves them as they are.
  TorchBatch Batch(std::span<const std::int64_t> samples, Random* permutations);

  // Costs in ms from what a network gives.
  at::Tensor CostsOf(const at::Tensor& outputs) const { return outputs * scale_; }

  // The sum over samples and targets of weight * loss(cost, target): (cost - target)^2, or
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
  // Of each row: its place in the batch of that number.
  std::vector<std::uint64_t> placed_in_;
  std::vector<std::int64_t> place_;
  std::uint64_t batch_number_ = 0;
};

// A network as an expression of autograd. `network` must outlive it; immutable; any thread.
class TorchNetwork {
 public:
  explicit TorchNetwork(const NetworkDefinition& network);

  // WeightsOf: [num_values] each.
  at::Tensor Weights(const at::Tensor& parameters) const;

  // The network's outputs [samples, outputs] by weights [num_values].
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
