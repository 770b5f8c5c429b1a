#include "server/evaluate/shard_range.h"

#include <fmt/format.h>

#include <cstdint>

namespace neuroshard {
namespace {

// The comparisons are arranged so that no sum of two values of the plan is ever formed.
bool CheckRange(std::int64_t offset, std::int64_t size, std::int64_t whole, const char* offset_name,
                const char* size_name, const std::string& path, Violations& violations) {
  bool ok = true;
  if (offset < 0 || offset >= whole) {
    violations.Add(fmt::format("{}.{}", path, offset_name),
                   fmt::format("must be in [0, {}), got {}", whole, offset));
    ok = false;
  }
  if (size < 1 || size > whole) {
    violations.Add(fmt::format("{}.{}", path, size_name),
                   fmt::format("must be in [1, {}], got {}", whole, size));
    ok = false;
  }
  if (ok && offset > whole - size) {
    violations.Add(fmt::format("{}.{}", path, size_name),
                   fmt::format("must be at most {} at {} {} of a table with {}, got {}",
                               whole - offset, offset_name, offset, whole, size));
    ok = false;
  }
  return ok;
}

}  // namespace

bool CheckShardRange(const Table& table, const Shard& shard, int num_ranks, const std::string& path,
                     Violations& violations) {
  const bool rows_ok = CheckRange(shard.row_offset, shard.rows, table.num_embeddings, "row_offset",
                                  "rows", path, violations);
  const bool cols_ok = CheckRange(shard.col_offset, shard.cols, table.embedding_dim, "col_offset",
                                  "cols", path, violations);
  const bool rank_ok = shard.rank >= 0 && shard.rank < num_ranks;
  if (!rank_ok) {
    violations.Add(path + ".rank",
                   fmt::format("must be in [0, {}), got {}", num_ranks, shard.rank));
  }
  return rows_ok && cols_ok && rank_ok;
}

}  // namespace neuroshard
