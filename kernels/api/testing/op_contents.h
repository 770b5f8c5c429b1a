// What an embedding op holds, for tests and benchmarks: they read all of it, and choose weights and
// gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/embedding_op.h"

namespace neuroshard::testing {

// Host copies. Until SetOutputGradient the gradient is a fixed pattern of ordinary small values; new
// inputs may bring it back, for tables without pooling. Lists are empty for a table that there is
// not.
class OpContents {
 public:
  virtual ~OpContents() = default;

  virtual std::vector<float> Output() const = 0;
  virtual Status SetOutputGradient(std::span<const float> gradient) = 0;
  virtual std::vector<float> Weights(int table) const = 0;
  virtual Status SetWeights(int table, std::span<const float> weights) = 0;
  // momentum1 of all rows, then momentum2 (StateOfRow).
  virtual std::vector<float> OptimizerState(int table) const = 0;
  // The rows that the slots of a table's cache hold, kNoRow where they are free.
  virtual std::vector<std::int64_t> SlotRows(int table) const = 0;
};

// Those of `op`, which must outlive them. kernels_cpu_contents knows the ops of CPUs,
// kernels_gpu_contents those of GPUs as well; a program links one of them.
std::unique_ptr<OpContents> ContentsOf(EmbeddingOp& op);

}  // namespace neuroshard::testing
