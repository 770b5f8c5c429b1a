// Table-batched embedding lookup: all shards of one device in one forward and one backward, as
// trainers run it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"
#include "kernels/indices/lookup_plan.h"

namespace neuroshard {

// What a device's kernels have. A spec with something else is INVALID_ARGUMENT, which names it and
// lists these.
struct EmbeddingAbilities {
  std::vector<DataType> weight_dtypes = {DataType::kFp32};  // that tables may be stored in
  std::vector<Optimizer> optimizers = {Optimizer::kSgd, Optimizer::kRowwiseAdagrad};
  std::vector<PoolingMode> pooling_modes = {PoolingMode::kSum, PoolingMode::kMean};
  std::vector<ComputeKernel> compute_kernels = {ComputeKernel::kFused};

  bool operator==(const EmbeddingAbilities&) const = default;
};
// Returns those of kernels that have everything, of tables in these types.
EmbeddingAbilities AllAbilities(std::vector<DataType> weight_dtypes);

// Shape and types of one table (or shard).
struct EmbeddingTableSpec {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  PoolingMode pooling_mode = PoolingMode::kSum;
  // The type of the weights where they are stored. Sums, gradients and optimizer state are fp32.
  DataType weight_dtype = DataType::kFp32;
  // fused: all of it in the device's memory. fused_uvm: weights, and optimizer state that has a
  // value for each of them, in the host's, where lookups reach for them. fused_uvm_caching: the
  // same behind a cache of load_factor x rows in the device's memory (cache_rule.h). What lookups
  // and updates give is the same to the bit.
  ComputeKernel kernel = ComputeKernel::kFused;
  double cache_load_factor = 0;  // of fused_uvm_caching, in (0, 1]
};

// What the caches of an op did since it was made: distinct rows of its lookups, added up over
// batches, and how many of them no cache held when their batch came.
struct CacheCounts {
  std::int64_t distinct_rows = 0;
  std::int64_t missed_rows = 0;
  std::int64_t free_slots = 0;  // now

  bool operator==(const CacheCounts&) const = default;
};

// The tables that are looked up together, and their optimizer. The defaults are FBGEMM's
// (SplitTableBatchedEmbeddingBagsCodegen); there is no weight decay.
struct EmbeddingOpSpec {
  std::vector<EmbeddingTableSpec> tables;
  std::int64_t batch_size = 0;
  Optimizer optimizer = Optimizer::kSgd;
  float learning_rate = 0.01F;
  float epsilon = 1e-8F;  // of all but SGD and LARS: added to the square root
  float beta1 = 0.9F;     // Adam, partial row-wise Adam, LAMB
  float beta2 = 0.999F;
  float eta = 0.001F;  // LARS
  float momentum = 0.9F;
  std::uint64_t seed = 0;  // of the weights
};

// Elements of optimizer state that a row of `cols` columns has, in two tensors as FBGEMM has them:
// momentum1 and momentum2. `cols`, 1 or 0.
struct OptimizerStateShape {
  std::int64_t momentum1 = 0;
  std::int64_t momentum2 = 0;
};
OptimizerStateShape StateOfRow(Optimizer optimizer, std::int64_t cols);

// Not thread-safe: one caller at a time. The layout of output and output_gradient is [batch_size,
// sum of cols] of the pooled tables, side by side, and behind it [ids, cols] of each table without
// pooling. A sample without ids gives zeros where it is pooled. Mean pooling divides by the number
// of ids (weights do not change the divisor).
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
  // Tables with a cache fetch the rows that it misses first (TorchRec's fused_uvm_caching without
  // prefetching).
  virtual void Forward() = 0;

  virtual CacheCounts Caches() const { return {}; }
  // Makes the next lookups reach for rows in host memory anew, as DeviceBackend::FlushCache does
  // with what a processor's caches hold. Weights, state and the caches of rows stay.
  virtual void ForgetHostRows() {}

  // Applies the gradient of the output, a fixed pattern of ordinary small values, to weights and
  // optimizer state: exact, i.e. the gradients of all occurrences of a row are summed before its
  // one update; rows that are not looked up keep weights and state. With t the number of this call,
  // from 1, and |x| the norm of a row:
  //   SGD                   w -= lr g
  //   Adagrad               m += g^2; w -= lr g / (sqrt(m) + epsilon)
  //   row-wise Adagrad      the same with mean(g^2), one m a row
  //   Adam                  m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
  //                         w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
  //   partial row-wise Adam the same with mean(g^2), one v a row
  //   LAMB                  with Adam's step r before lr: w -= lr |w| / |r| r
  //   LARS                  m = momentum m + lr eta |w| / |g| g; w -= m
  // These are FBGEMM's (codegen/genscript/optimizers.py), but for what it has no number for: where
  // |r| or |g| is 0, so is what is divided by it. The result does not depend on the number of
  // threads.
  virtual void Backward() = 0;
};

// INVALID_ARGUMENT names what is out of range (batch size, rows, cols, the optimizer's numbers) or
// not among the abilities.
Status CheckSpec(const EmbeddingOpSpec& spec, const EmbeddingAbilities& abilities);

// INVALID_ARGUMENT when there is not one batch a table, or names the first batch that is not well
// formed ("inputs[3]: ...").
Status CheckInputs(const EmbeddingOpSpec& spec, const std::vector<LookupBatch>& inputs);

// INVALID_ARGUMENT when there is not one plan a table, or names the first that does not suit its
// table ("inputs[3]: ...").
Status CheckPlans(const EmbeddingOpSpec& spec, const std::vector<LookupPlan>& plans);

}  // namespace neuroshard
