// Migrations at random, for a request that has none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/random.h"
#include "common/domain/plan_request.h"
#include "tests/support/random_plan.h"

namespace neuroshard::testing {

// A previous plan that may lack tables, know others and have some in another size.
inline void AddRandomMigration(Random& random, PlanRequest& request) {
  Migration& migration = request.migration.emplace();
  migration.previous = RandomPlan(random, request);
  double bytes = 0;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const Table& table = request.tables[t];
    bytes += static_cast<double>(table.num_embeddings) * static_cast<double>(table.embedding_dim) *
             ElementBytes(table.weight_dtype);
    TablePlan& previous = migration.previous.tables[t];
    if (random.Below(6) == 0) previous.name = "gone" + previous.name;
    if (random.Below(6) == 0) previous.shards.back().cols += 4;
  }
  const std::uint64_t kind = random.Below(3);
  if (kind == 0) migration.budget_bytes = 0;
  if (kind == 1) migration.budget_bytes = static_cast<std::int64_t>(bytes * random.UniformReal());
  if (random.Below(2) == 0) migration.price_ms_per_gib = 1e6 * random.UniformReal();
}

}  // namespace neuroshard::testing
