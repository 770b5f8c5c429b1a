// What changes when one plan takes the place of another: what every table does, what has to move,
// and the costs of both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/table.h"

namespace neuroshard {

// Where a table is in one plan.
struct TablePlaces {
  ShardingType sharding_type = ShardingType::kTableWise;
  int shards = 0;
  std::vector<int> ranks;  // that hold a part of it, ascending, each once
  ComputeKernel compute_kernel = ComputeKernel::kFused;
  double cache_load_factor = 0;  // of fused_uvm_caching; otherwise 0

  bool operator==(const TablePlaces&) const = default;
};

// A table that is laid out or placed otherwise.
struct TableChange {
  std::string table;  // the shortest text that refers to it (table.proto)
  TablePlaces before;
  TablePlaces after;
  // Weights that ranks have to copy, as MigrationReport counts them: what is new on its rank, or in
  // its memory there. 0 where the size of the table changed, since its weights are new.
  std::int64_t moved_bytes = 0;
  bool resized = false;
};

// Tables keep the order of the plan after.
struct PlanDiff {
  std::vector<TableChange> changes;
  std::vector<std::string> only_before;
  std::vector<std::string> only_after;
  int tables_before = 0;
  int tables_after = 0;
  std::int64_t moved_bytes = 0;
  std::int64_t weight_bytes = 0;  // of the plan after, replicas counted
};

// `tables` give the weights' types; those that it lacks have weights of 4 bytes. INVALID_ARGUMENT
// when the plans have no table in common. O(shards before x shards after) for each table.
StatusOr<PlanDiff> DiffPlans(const Plan& before, const Plan& after,
                             const std::vector<Table>& tables);

// What a plan costs; none where nobody says.
struct PricedPlan {
  std::string file;
  std::optional<PlanCost> cost;
};

// What is said about the whole comparison.
struct DiffReport {
  PricedPlan before;
  PricedPlan after;
  PlanDiff diff;
  std::string basis;               // what the costs rest on; may be empty
  bool weights_are_known = false;  // their types are those of a request
  std::vector<std::string> notes;
};

// At most `max_tables` changed tables, those that move most first; the rest is counted.
std::string DiffAsText(const DiffReport& report, std::size_t max_tables = 20);

// {"before": {"file", "cost_ms", "tables"}, "after": ..., "price_basis", "moved_bytes",
//  "weight_bytes", "weights_are_known", "tables": [{"table", "moved_bytes", "resized", "before":
//  {"sharding_type", "shards", "ranks"} and, where either kernel is in host memory or on SSD, or
//  only kernels differ, "compute_kernel" and "cache_load_factor", "after": ...}],
//  "only_before": [...], "only_after": [...],
//  "ranks": [{"rank", "before": {"compute_ms", "forward_comm_ms", "backward_comm_ms", "total_ms"}
//  and "input_dist_ms" where it is priced, "after": ...}], "notes": [...]}. Costs that nobody states
//  are null.
std::string DiffAsJson(const DiffReport& report);

}  // namespace neuroshard
