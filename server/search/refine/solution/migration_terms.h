// Migration terms: what of a plan in place may move, and what it costs, while local search is under
// way.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/refine/solution/unit.h"

namespace neuroshard {

// Bytes that units move (Migration), as far as that can be told before they have their columns: a
// unit on one rank keeps as many columns as the rank has of the table, any other unit all or
// nothing. MakePlan orders columns so that this is nearly so; the plan is checked in the end.
// Queries take time in the units of a table in place, and may run concurrently.
class MigrationTerms {
 public:
  // `in_place`: the units of the tables that could stay, in the order of their columns. Both other
  // arguments must outlive it; the request has a migration.
  MigrationTerms(const PlanRequest& request, const CompiledRules& rules,
                 std::span<const Unit> in_place);

  // The most that may move.
  std::int64_t budget_bytes() const { return budget_bytes_; }
  // What so many bytes cost.
  double PriceMs(std::int64_t moved_bytes) const;
  std::int64_t MovedBytes(const Unit& unit) const;

  // A table's units in the order of their columns, so that most of these stay where they are; a
  // ragged end last.
  std::vector<const Unit*> Ordered(std::span<const Unit* const> units) const;

 private:
  // Columns of a table in place.
  struct Held {
    Unit unit;
    std::int64_t col_offset = 0;
  };

  // Null: the unit's rank has none.
  const Held* HeldBy(const Unit& unit) const;

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const std::int64_t budget_bytes_;
  std::vector<bool> is_in_place_;        // by table
  std::vector<std::vector<Held>> held_;  // by table
};

}  // namespace neuroshard
