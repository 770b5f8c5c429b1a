#include "kernels/cpu/op_memory.h"

#include <algorithm>
#include <limits>

#include "common/base/bytes.h"
#include "kernels/cpu/host_table.h"
#include "kernels/machine/machine.h"

namespace neuroshard {
namespace {

// Sums that are beyond any machine stay here instead of overflowing.
constexpr std::int64_t kBeyondAny = std::numeric_limits<std::int64_t>::max() / 4;

// Bytes of the arena, of the device's memory beside it, and of the host's.
struct NeededBytes {
  std::int64_t arena = 0;
  std::int64_t beside = 0;
  std::int64_t host = 0;
};

NeededBytes BytesFor(const EmbeddingOpSpec& spec) {
  NeededBytes needed;
  std::int64_t& bytes = needed.arena;
  std::int64_t output_cols = 0;
  for (const EmbeddingTableSpec& table : spec.tables) {
    const OptimizerStateShape state = StateOfRow(spec.optimizer, table.cols);
    if (IsInHostMemory(table.kernel)) {
      needed.beside = std::min(kBeyondAny, needed.beside + HostTable::DeviceBytes(table));
      needed.host = std::min(kBeyondAny, needed.host + HostTable::HostBytes(table, state));
    } else {
      AddBlock(table.rows, table.cols, bytes);
    }
    if (IsInArena(table, state.momentum1)) AddBlock(table.rows, state.momentum1, bytes);
    if (IsInArena(table, state.momentum2)) AddBlock(table.rows, state.momentum2, bytes);
    // Columns that overflow here have made `bytes` too large above.
    if (table.pooling_mode == PoolingMode::kNone) continue;
    output_cols = std::min(output_cols, std::int64_t{1} << 61) + table.cols;
  }
  AddBlock(spec.batch_size, output_cols, bytes);
  AddBlock(spec.batch_size, output_cols, bytes);
  return needed;
}

}  // namespace

void AddBlock(std::int64_t a, std::int64_t b, std::int64_t& bytes) {
  std::int64_t block;
  if (__builtin_mul_overflow(a, b, &block) || block > kBeyondAny / 4) {
    bytes = kBeyondAny;
  } else {
    bytes = std::min(kBeyondAny, bytes + MemoryArena::BlockBytes(block * 4));
  }
}

bool IsInArena(const EmbeddingTableSpec& table, std::int64_t values_of_row) {
  return values_of_row > 0 && (values_of_row == 1 || !IsInHostMemory(table.kernel));
}

Status CheckOpFits(const MemoryArena& arena, const EmbeddingOpSpec& spec) {
  const NeededBytes needed = BytesFor(spec);
  NS_RETURN_IF_ERROR(Annotate(arena.CheckFits(needed.arena, needed.beside),
                              needed.host == 0
                                  ? "embedding tables"
                                  : "embedding tables and caches of those in host memory"));
  const std::int64_t available = std::max(
      AvailableMemoryBytes() - needed.beside - arena.NewPagesBytes(needed.arena), std::int64_t{0});
  if (needed.host <= available) return absl::OkStatus();
  return ResourceExhausted(
      "tables in host memory: needs {} ({} bytes), but only {} ({} bytes) are available",
      FormatBytes(needed.host), needed.host, FormatBytes(available), available);
}

}  // namespace neuroshard
