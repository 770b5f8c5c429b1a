// Table-batched embedding on one core.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/embedding_op.h"
#include "kernels/cpu/embedding_kernels.h"
#include "kernels/cpu/host_table.h"
#include "kernels/cpu/memory_arena.h"

namespace neuroshard {
namespace testing {
class CpuOpContents;
}

// The embedding op on one core. Lives in the device's arena, one at a time; not for concurrent use.
class CpuEmbeddingOp final : public EmbeddingOp {
 public:
  // Resets the arena and owns all of it until destroyed. INVALID_ARGUMENT for a spec out of range,
  // RESOURCE_EXHAUSTED when weights, optimizer state, output and its gradient do not fit, or what
  // is in host memory does not fit the machine; nothing was touched then.
  static StatusOr<std::unique_ptr<CpuEmbeddingOp>> Create(std::shared_ptr<MemoryArena> arena,
                                                          const EmbeddingOpSpec& spec);

  static const EmbeddingAbilities& Abilities();

  // Also RESOURCE_EXHAUSTED, when there is no room to sort the ids, or for the vectors of tables
  // without pooling and their gradients; the old inputs stay.
  Status SetInputs(std::vector<LookupBatch> inputs) override;
  void Forward() override;
  void Backward() override;
  CacheCounts Caches() const override;
  void ForgetHostRows() override;

 private:
  friend class testing::CpuOpContents;

  struct TableData {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t first_output_col = 0;
    PoolingMode pooling_mode = PoolingMode::kSum;
    std::span<float> weights = {};  // empty where there is a host table
    std::unique_ptr<HostTable> host = nullptr;
    std::span<float> momentum1 = {};  // empty without
    std::span<float> momentum2 = {};
    // A table without pooling has a vector an id, and its gradient.
    std::span<float> vectors = {};
    std::span<float> vector_gradients = {};
  };

  CpuEmbeddingOp(std::shared_ptr<MemoryArena> arena, const EmbeddingOpSpec& spec)
      : arena_(std::move(arena)), spec_(spec) {}

  Status MakeTables();
  Status MakeTable(const EmbeddingTableSpec& table, std::uint64_t seed);
  // The rows that ids are looked up in, and by which keys.
  static RowList RowsOf(const TableData& table, const LookupBatch& batch);
  std::span<float> TakeFloats(std::int64_t count);
  // Takes the vectors of unpooled tables, where they fit together with `beside_bytes` outside of
  // the arena.
  Status TakeVectors(const std::vector<LookupBatch>& inputs, std::int64_t beside_bytes);
  void MakeKeys(const TableData& table, const LookupBatch& batch,
                std::span<const std::uint64_t> rows, int low_bits);
  void BackwardTable(const TableData& table, const LookupBatch& batch);

  std::shared_ptr<MemoryArena> arena_;
  EmbeddingOpSpec spec_;
  std::int64_t output_cols_ = 0;
  std::uint64_t vectors_seed_ = 0;  // of the gradients of tables without pooling
  std::int64_t fixed_bytes_ = 0;    // of the arena; behind them, what depends on the inputs
  std::int64_t beside_bytes_ = 0;   // of the device's memory outside of the arena: caches
  std::vector<TableData> tables_;
  std::span<float> output_;
  std::span<float> output_gradient_;

  std::vector<LookupBatch> inputs_;
  // Room for sorting the largest table, used by turns.
  std::vector<std::uint64_t> keys_, spare_keys_;
  std::vector<float> key_weights_, spare_key_weights_;
  std::vector<float> scratch_;
  std::int64_t step_ = 0;  // backward passes
};

}  // namespace neuroshard
