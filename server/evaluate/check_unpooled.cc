#include "server/evaluate/check_unpooled.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

namespace neuroshard {

void CheckUnpooledTables(const PlanRequest& request, const Plan& plan,
                         const std::vector<int>& table_of, Violations& violations) {
  // A column_wise table's entry and the width of its first block, by module and embedding_dim.
  std::map<std::pair<std::string_view, std::int64_t>, std::pair<std::size_t, std::int64_t>> first;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (table_of[t] < 0) continue;
    const Table& table = request.tables[static_cast<std::size_t>(table_of[t])];
    const TablePlan& entry = plan.tables[t];
    if (table.kind != TableKind::kEmbedding) continue;
    if (!IsTypeOf(table.kind, entry.sharding_type)) {
      violations.Add(fmt::format("plan.tables[{}].sharding_type", t),
                     fmt::format("must be table_wise, column_wise or row_wise for an unpooled "
                                 "table (kind \"embedding\"), got {}",
                                 ToText(entry.sharding_type)));
    }
    if (entry.sharding_type != ShardingType::kColumnWise) continue;
    for (std::size_t s = 0; s < entry.shards.size(); ++s) {
      const std::int64_t cols = entry.shards[s].cols;
      const auto [block, is_first] =
          first.try_emplace({table.module, table.embedding_dim}, t, cols);
      const auto& [of, width] = block->second;
      if (is_first || cols == width) continue;
      violations.Add(
          fmt::format("plan.tables[{}].shards[{}].cols", t, s),
          fmt::format("must be {}, as plan.tables[{}] has, since TorchRec runs one block "
                      "width in an EmbeddingCollection, got {}",
                      width, of, cols));
    }
  }
}

}  // namespace neuroshard
