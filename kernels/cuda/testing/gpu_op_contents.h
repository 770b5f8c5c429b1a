// What an op of a GPU holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/api/testing/op_contents.h"
#include "kernels/cuda/gpu_embedding_op.h"

namespace neuroshard::testing {

class GpuOpContents final : public OpContents {
 public:
  explicit GpuOpContents(cuda::GpuEmbeddingOp& op) : op_(op) {}

  std::vector<float> Output() const override;
  Status SetOutputGradient(std::span<const float> gradient) override;
  std::vector<float> Weights(int table) const override;
  Status SetWeights(int table, std::span<const float> weights) override;
  std::vector<float> OptimizerState(int table) const override;
  std::vector<std::int64_t> SlotRows(int table) const override;

 private:
  Status CheckTable(int table) const;
  std::int64_t OutputSize() const;
  // So many columns of each of the device's padded rows; empty where the device fails.
  std::vector<float> CopyRows(const float* from, std::int64_t rows, std::int64_t stride,
                              std::int64_t cols) const;
  StatusOr<std::vector<std::int64_t>> RowsOfSlots(std::size_t table) const;
  // Bytes of slots to and from those of their rows, for a table of so many.
  Status CopySlotsOut(std::size_t table, std::vector<std::byte>& rows) const;
  Status CopySlotsIn(std::size_t table, const std::vector<std::byte>& rows);

  cuda::GpuEmbeddingOp& op_;
};

}  // namespace neuroshard::testing
