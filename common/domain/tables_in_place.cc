#include "common/domain/tables_in_place.h"

#include <cstddef>

#include "common/domain/held_shards.h"
#include "common/domain/table_names.h"

namespace neuroshard {

std::vector<const TablePlan*> TablesInPlace(const PlanRequest& request) {
  std::vector<const TablePlan*> in_place(request.tables.size(), nullptr);
  if (!request.migration.has_value()) return in_place;
  const Plan& previous = request.migration->previous;
  const std::vector<int> table_of = TablesOf(previous, request.tables);
  std::vector<bool> seen(request.tables.size());
  for (std::size_t e = 0; e < table_of.size(); ++e) {
    const std::size_t index = static_cast<std::size_t>(table_of[e]);
    if (table_of[e] < 0 || seen[index]) continue;
    seen[index] = true;
    const Table& table = request.tables[index];
    const TablePlan& entry = previous.tables[e];
    if (!HeldShards(entry.shards, table.num_embeddings, table.embedding_dim).empty()) {
      in_place[index] = &entry;
    }
  }
  return in_place;
}

}  // namespace neuroshard
