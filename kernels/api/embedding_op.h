// Table-batched embedding lookup: all shards of one device in one forward and one backward, as
// trainers run it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"
#include "kernels/indices/lookup_batch.h"
#include "kernels/indices/lookup_plan.h"

namespace neuroshard {

// Shape and types of one table (or shard).
struct EmbeddingTableSpec {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  PoolingMode pooling_mode = PoolingMode::kSum;
  // Of the weights where they are stored. Sums, gradients, optimizer state and what Weights and
  // SetWeights exchange are fp32; a device without a type answers INVALID_ARGUMENT.
  DataType weight_dtype = DataType::kFp32;
};

// The tables that are looked up together, and their optimizer.
struct EmbeddingOpSpec {
  std::vector<EmbeddingTableSpec> tables;
  std::int64_t batch_size = 0;
  Optimizer optimizer = Optimizer::kSgd;  // kSgd or kRowwiseAdagrad
  float learning_rate = 0.01F;
  float epsilon = 1e-8F;   // row-wise Adagrad: added to the square root
  std::uint64_t seed = 0;  // of the weights
};

// Not thread-safe: one caller at a time. The layout of output and output_gradient is [batch_size,
// sum of cols], tables side by side. A sample without ids gives zeros. Mean pooling divides by the
// number of ids (weights do not change the divisor).
class EmbeddingOp {
 public:
  virtual ~EmbeddingOp() = default;

  // One batch per table, checked against the spec (INVALID_ARGUMENT names the table). Copies what
  // it needs to the device.
  virtual Status SetInputs(std::vector<LookupBatch> inputs) = 0;

  // One plan per table, of its batch size and no more rows than it has (INVALID_ARGUMENT names the
  // table). The same as SetInputs with what ExpandLookups makes of each, to the bit; devices that
  // can (DeviceProperties::generates_ids) make the ids in their own memory, and the host never
  // holds them. Here: by ExpandLookups.
  virtual Status GenerateInputs(const std::vector<LookupPlan>& plans);

  // Pools every table's rows into the output. SetInputs or GenerateInputs must have been called.
  virtual void Forward() = 0;

  // Applies the gradient of the output to weights and optimizer state: exact, i.e. the gradients of
  // all occurrences of a row are summed before its one update. SGD: w -= lr * g. Row-wise Adagrad:
  // m += mean(g^2); w -= lr * g / (sqrt(m) + epsilon). The result does not depend on the number of
  // threads.
  virtual void Backward() = 0;

  // Host copies, for tests. Until SetOutputGradient the gradient is a fixed pattern of ordinary
  // small values.
  virtual std::vector<float> Output() const = 0;
  virtual Status SetOutputGradient(std::span<const float> gradient) = 0;
  virtual std::vector<float> Weights(int table) const = 0;
  virtual Status SetWeights(int table, std::span<const float> weights) = 0;
  virtual std::vector<float> OptimizerState(
      int table) const = 0;  // row-wise Adagrad: one a row; SGD: empty
};

}  // namespace neuroshard
