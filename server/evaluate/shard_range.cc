#include "server/evaluate/shard_range.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "common/domain/shard_layout.h"

namespace neuroshard {
namespace {

// A range of at least `least` (0 or 1) of [0, whole). The comparisons are arranged so that no sum
// of two values of the plan is ever formed.
bool CheckRange(std::int64_t offset, std::int64_t size, std::int64_t least, std::int64_t whole,
                const char* offset_name, const char* size_name, ShardPosition position,
                Violations& violations) {
  bool ok = true;
  const auto add = [&](const char* field, std::string description) {
    violations.Add(
        fmt::format("plan.tables[{}].shards[{}].{}", position.table, position.shard, field),
        std::move(description));
  };
  if (offset < 0 || offset > whole - least) {
    add(offset_name,
        fmt::format("must be in [0, {}{}, got {}", whole, least == 0 ? "]" : ")", offset));
    ok = false;
  }
  if (size < least || size > whole) {
    add(size_name, fmt::format("must be in [{}, {}], got {}", least, whole, size));
    ok = false;
  }
  if (ok && offset > whole - size) {
    add(size_name, fmt::format("must be at most {} at {} {} of a table with {}, got {}",
                               whole - offset, offset_name, offset, whole, size));
    ok = false;
  }
  return ok;
}

}  // namespace

bool CheckShardRange(const Table& table, ShardingType type, const Shard& shard, int num_ranks,
                     ShardPosition position, Violations& violations) {
  const bool rows_ok = CheckRange(shard.row_offset, shard.rows, CutsRows(type) ? 0 : 1,
                                  table.num_embeddings, "row_offset", "rows", position, violations);
  const bool cols_ok = CheckRange(shard.col_offset, shard.cols, 1, table.embedding_dim,
                                  "col_offset", "cols", position, violations);
  const bool rank_ok = shard.rank >= 0 && shard.rank < num_ranks;
  if (!rank_ok) {
    violations.Add(fmt::format("plan.tables[{}].shards[{}].rank", position.table, position.shard),
                   fmt::format("must be in [0, {}), got {}", num_ranks, shard.rank));
  }
  return rows_ok && cols_ok && rank_ok;
}

}  // namespace neuroshard
