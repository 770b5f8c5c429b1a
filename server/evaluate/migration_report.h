// Migration report: what a plan moves, compared with the one that is in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/domain/held_shards.h"
#include "common/domain/plan.h"
#include "common/domain/plan_cost.h"
#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// The parts of the request's tables that each rank holds under Migration::previous, in which any
// values may stand. Of a table that it names twice, the first entry counts; of shards of a table
// that share columns on one rank (no legal plan has such), the first. Without a migration, every
// table is new.
class PreviousPlacement {
 public:
  // The request must outlive this.
  explicit PreviousPlacement(const PlanRequest& request);

  // Whether the previous plan has the table, in its present size.
  bool Has(int table) const { return !held_[static_cast<std::size_t>(table)].empty(); }

  // Bytes of the shard that its rank does not hold yet in the kernel's memory, so all of it where
  // the table goes from device to host memory or back; 0 for new tables and for a shard that is
  // none (empty, or outside its table). What a cache holds is not counted. Saturates at 2^60.
  // O(log k + shards in common) for k shards of the table before.
  std::int64_t MovedBytes(int table, ComputeKernel kernel, const Shard& shard) const;
  // The table's kernel before; kFused for new tables.
  ComputeKernel kernel(int table) const { return kernels_[static_cast<std::size_t>(table)]; }

 private:
  const PlanRequest& request_;
  std::vector<HeldShards> held_;        // by table
  std::vector<ComputeKernel> kernels_;  // by table
};

// Reports of any plan; tables and shards that are none are passed over. The request must have a
// migration.
MigrationReport ReportMigration(const PlanRequest& request, const Plan& plan);

// What searches make small: the plan's cost plus the price of what it moves.
double CostWithMigration(const PlanRequest& request, const Plan& plan, const PlanCost& cost);

}  // namespace neuroshard
