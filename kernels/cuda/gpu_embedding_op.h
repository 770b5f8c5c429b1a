// Table-batched embedding on a GPU: what is stored where, and in which order what is launched. All
// arithmetic is in the kernels (pooling.h, row_keys.h, row_update.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/embedding_op.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/gpu_row_caches.h"
#include "kernels/cuda/launch_arrays.h"
#include "kernels/cuda/launch_plan.h"

namespace neuroshard::cuda {

// Rows, and each table's columns of output and gradient, are padded to a multiple of four columns
// on the device, so that every width is read in whole vectors.
//
// The rows and moments of tables in the host's memory are pinned there, and kernels read and update
// them over the bus; the rest of the op is on the device, caches of rows (GpuRowCaches) too.
//
// SetInputs makes everything that depends on the number of ids: Forward and Backward only launch,
// and neither allocates nor waits. After a CUDA error their results mean nothing;
// DeviceBackend::Health reports it.
class GpuEmbeddingOp final : public EmbeddingOp {
 public:
  // INVALID_ARGUMENT for a spec out of range: also more than kMaxCols columns, or 2^32 rows of all
  // tables. RESOURCE_EXHAUSTED when weights, optimizer state, output and its gradient do not fit,
  // or what is in the host's memory does not fit that.
  static StatusOr<std::unique_ptr<GpuEmbeddingOp>> Create(std::shared_ptr<Gpu> gpu,
                                                          const EmbeddingOpSpec& spec);

  static const EmbeddingAbilities& Abilities();

  // Also RESOURCE_EXHAUSTED, when ids and the room to sort them do not fit.
  Status SetInputs(std::vector<LookupBatch> inputs) override;
  // A kernel makes the ids; the host makes only the ends of long bags.
  Status GenerateInputs(const std::vector<LookupPlan>& plans) override;
  void Forward() override;
  void Backward() override;
  CacheCounts Caches() const override;

 private:
  friend class neuroshard::testing::GpuOpContents;

  struct TableData {
    EmbeddingTableSpec spec;
    NumberType type = NumberType::kFp32;
    std::int32_t vectors = 0;
    std::uint32_t first_key = 0;
    std::byte* weights = nullptr;
    // Optimizer state, null without: one value a row, or one a weight in padded rows.
    float* state = nullptr;
    float* momentum1 = nullptr;
    float* momentum2 = nullptr;
    std::uint64_t gradient_seed = 0;
    // Where the table's first column is, on the device; without pooling, of the batch's vectors.
    float* output = nullptr;
    float* gradient = nullptr;
    std::int64_t stride = 0;        // floats from one sample, or id, to the next
    std::int64_t num_unpooled = 0;  // ids of the batch

    bool pooled() const { return spec.pooling_mode != PoolingMode::kNone; }
  };

  GpuEmbeddingOp(std::shared_ptr<Gpu> gpu, const EmbeddingOpSpec& spec);
  Status Allocate();
  Status Initialise();
  // Makes room for batches of these shapes, in which `fill` then puts ids, offsets and weights, and
  // plans the launches.
  Status TakeInputs(const std::vector<BatchShape>& shapes,
                    const std::function<Status(const BatchArrays&)>& fill);
  Status CheckRoom(std::int64_t bytes) const;
  Status CopyInputs(const std::vector<LookupBatch>& inputs, const BatchArrays& batch);
  Status LaunchPlans(const std::vector<LookupPlan>& plans, const BatchArrays& batch);
  // Writes the gradients of tables without pooling.
  Status FillGradients();
  Status Fill(const std::vector<FillTable>& fills);
  Status CopyLongBags(const std::vector<BatchShape>& shapes, const BatchArrays& batch);
  template <typename T>
  Status CopyIn(const std::vector<T>& values, T* to);
  Status PlanLaunches(const std::vector<BatchShape>& shapes, const BatchArrays& batch);
  Status PlanForward(const std::vector<BatchShape>& shapes, const BatchArrays& batch,
                     LaunchArrays& arrays);
  Status PlanBackward(const std::vector<BatchShape>& shapes, const BatchArrays& batch,
                      LaunchArrays& arrays);
  UpdateStep NextStep();

  std::shared_ptr<Gpu> gpu_;
  const EmbeddingOpSpec spec_;
  std::vector<TableData> tables_;
  GpuRowCaches caches_;
  std::int64_t device_cols_ = 0;  // of output and gradient of pooled tables
  int key_bits_ = 1;
  float* output_ = nullptr;
  float* output_gradient_ = nullptr;

  GpuBuffer model_;     // weights, state, output, gradient, caches
  GpuBuffer host_;      // weights and moments of tables in the host's memory
  GpuBuffer batch_;     // ids and everything as long as them
  GpuBuffer launches_;  // arrays of tables

  bool has_inputs_ = false;
  // The launches of tables without a cache, or of those with one.
  struct RowLaunches {
    PoolLaunch pool, pool_segments;
    GatherLaunch gather;
  };
  RowLaunches rows_[2];
  SegmentLaunch add_segments_;
  KeyLaunch make_keys_;
  SortLaunch sort_;
  std::vector<UpdateLaunch> updates_;
  std::int64_t steps_ = 0;  // of the optimizer
};

}  // namespace neuroshard::cuda
