// Relayouts: other layouts and places of one table of a plan, while all others stay, or why there
// are none.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/placement_ledger.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// A minimal set of demands that keep `type` out of CompiledRules' types for the table, e.g.
// "constraints.tables[2].ranks (only ranks 0, 1 for 'user_id')". Empty if the type is allowed.
// O(constraints) a few times.
std::string TypeObstacle(const PlanRequest& request, TypeSet default_types, int table,
                         ShardingType type);

// Layouts of one sharding type that keep every rule, memory and the migration budget.
struct Relayouts {
  ShardingType type = ShardingType::kTableWise;
  std::vector<PlacedTable> layouts;
  std::string reason;  // if there is none
};

// Proposes a bounded number of layouts a type: the whole table, or a power of two of even slices of
// its columns, up to 8, or HugeCTR's blocks on up to 8 ranks, on the cheapest ranks or hosts that
// take them, up to 8 places each. So "none" means that none was found.
class RelayoutFinder {
 public:
  // Any plan for the request whose shards are in range. All must outlive the finder.
  RelayoutFinder(const PlanRequest& request, TypeSet default_types, const CompiledRules& rules,
                 const Plan& plan);

  // Alternatives to `entry` of the request's table `table`: every other sharding type in the memory
  // where its rows are now (device memory, or host memory with its cache). If it is in host memory,
  // also in its own type in device memory, which says why it is not there. rank_cost_ms are what
  // the ranks cost without the table.
  std::vector<Relayouts> Find(int table, const TablePlan& entry,
                              std::span<const double> rank_cost_ms);

 private:
  class Proposals;

  // Whether it is in place, and Migration::only_types leaves its kernel alone.
  bool StaysAsItIs(int table) const;

  const PlanRequest& request_;
  const TypeSet default_types_;
  const CompiledRules& rules_;
  PlacementLedger ledger_;
};

}  // namespace neuroshard
