// Migration terms: what of a plan in place may move, and what it costs, while local search is under
// way.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// Bytes that units move (Migration), as far as that can be told before they have their columns: a
// unit on one rank keeps as many columns as the rank has, in the rows that it has; a unit of blocks
// of rows is laid out where its host has the table. Ordered hands out columns so that this is nearly
// so. A plan may move a little more than was counted, and is checked in the end. Bytes are doubles,
// whose sums are exact to 2^53. A query takes time in the logarithm of the shards in place, for a
// unit of many shards once in those. For one thread.
class MigrationTerms {
 public:
  // Both must outlive it; the request has a migration.
  MigrationTerms(const PlanRequest& request, const CompiledRules& rules);

  // The most that may move.
  double budget_bytes() const { return budget_bytes_; }
  // What so many bytes cost.
  double PriceMs(double moved_bytes) const;
  // `places`: as LayOut takes them.
  double MovedBytes(const Unit& unit, std::span<const int> places) const;

  // A table's units in the order of their columns, so that most of these stay where they are; a
  // ragged end last.
  std::vector<const Unit*> Ordered(std::span<const Unit* const> units) const;

 private:
  // What a rank has of a table: columns of some or all rows.
  struct Held {
    int rank = 0;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t col_offset = 0;  // of the first
  };
  // What tells apart units of many shards: table, type, columns, whether it changes memory, places.
  using ManyShards = std::tuple<int, ShardingType, std::int64_t, bool, std::vector<int>>;

  // What the rank of a unit on one rank, or the first of its host, has; null: nothing.
  const Held* HeldBy(const Unit& unit) const;
  double MovedByMany(const Unit& unit, std::span<const int> places) const;
  ComputeKernel KernelOf(const Unit& unit) const;

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const double budget_bytes_;
  const PreviousPlacement previous_;
  std::vector<std::vector<Held>> held_;                            // by table, ascending ranks
  mutable absl::flat_hash_map<ManyShards, double> moved_by_many_;  // a cache
};

}  // namespace neuroshard
