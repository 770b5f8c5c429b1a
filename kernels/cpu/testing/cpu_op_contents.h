// What an op of a CPU holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/api/testing/op_contents.h"
#include "kernels/cpu/cpu_embedding_op.h"

namespace neuroshard::testing {

class CpuOpContents final : public OpContents {
 public:
  explicit CpuOpContents(CpuEmbeddingOp& op) : op_(op) {}

  // The pooled tables, then the others.
  std::vector<float> Output() const override;
  Status SetOutputGradient(std::span<const float> gradient) override;
  std::vector<float> Weights(int table) const override;
  Status SetWeights(int table, std::span<const float> weights) override;
  std::vector<float> OptimizerState(int table) const override;
  std::vector<std::int64_t> SlotRows(int table) const override;

 private:
  Status CheckTable(int table) const;

  CpuEmbeddingOp& op_;
};

}  // namespace neuroshard::testing
