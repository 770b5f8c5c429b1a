// Kernel limits: what the lookup kernels of trainers take, in one table. Searches keep to it, checks
// of plans name the shard that does not, warnings and the forms of plans name the table.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// Limits of one trainer's kernels on one kind of device. No rows are too many for any of them.
struct KernelLimits {
  std::string_view kernels;  // "FBGEMM on CUDA devices"
  // Columns of a shard: at most so many, and a multiple of so many.
  std::int64_t max_columns = std::numeric_limits<std::int64_t>::max();
  std::int64_t column_multiple = 1;
  // That a table is trained with; empty: any.
  std::span<const DataType> weight_dtypes = {};
  std::span<const Optimizer> optimizers = {};
};

namespace kernel_limits {

// FBGEMM 1.9. max_embedding_dim of its generated CUDA kernels, pooled or not; its CPU kernels have
// none. Multiples: construct_split_state, which TorchRec's fused kernels call on any device. Weights
// and optimizers: split_table_batched_embeddings_ops_training.py; bf16 is refused when a kernel is
// chosen (bench/results/nvidia-h100-80gb-hbm3).
inline constexpr std::array kCudaDtypes = {DataType::kFp32, DataType::kFp16, DataType::kFp8,
                                           DataType::kInt8};
inline constexpr KernelLimits kFbgemmCuda = {"FBGEMM on CUDA devices", 2048, 4, kCudaDtypes, {}};
inline constexpr std::array kCpuDtypes = {DataType::kFp32, DataType::kFp16};
inline constexpr std::array kCpuOptimizers = {Optimizer::kSgd, Optimizer::kAdagrad,
                                              Optimizer::kRowwiseAdagrad};
inline constexpr KernelLimits kFbgemmCpu = {
    "FBGEMM on CPUs", std::numeric_limits<std::int64_t>::max(), 4, kCpuDtypes, kCpuOptimizers};
// What its documentation gives as the widest vector.
inline constexpr KernelLimits kHugeCtr = {"HugeCTR", 256};
// This project's kernels, and trainers of which nothing is said.
inline constexpr KernelLimits kAny = {"any"};

}  // namespace kernel_limits

// Those that TorchRec's trainer looks up with.
constexpr const KernelLimits& FbgemmOn(std::optional<ComputeDevice> device) {
  if (!device) return kernel_limits::kAny;
  return *device == ComputeDevice::kCuda ? kernel_limits::kFbgemmCuda : kernel_limits::kFbgemmCpu;
}

}  // namespace neuroshard
