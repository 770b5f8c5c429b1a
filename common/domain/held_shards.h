// What ranks hold of a table, and what of a new layout they lack; tables that are in place.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

double Cells(const Shard& shard);

// The rectangle that both have, on the rank of `a`; none: they have nothing in common.
std::optional<Shard> Overlap(const Shard& a, const Shard& b);

// Whether it is a part of a table of rows x cols. Any values may stand in it.
bool IsInside(const Shard& shard, std::int64_t rows, std::int64_t cols);

// The shards of one table in a plan. Queries may run concurrently.
class HeldShards {
 public:
  // Holds nothing.
  HeldShards() = default;
  // Any shards, of a table of rows x cols; where they are of another size, nothing is held. Of
  // shards that share columns on one rank (no legal plan has such), the first counts. O(k log k).
  HeldShards(std::span<const Shard> shards, std::int64_t rows, std::int64_t cols);

  bool empty() const { return shards_.empty(); }
  // Ascending (rank, col_offset), without common columns on a rank and without empty ones.
  const std::vector<Shard>& shards() const { return shards_; }

  // Cells of a shard inside the table that its rank does not hold. O(log k + shards in common).
  double MissingCells(const Shard& shard) const;

 private:
  std::vector<Shard> shards_;
};

// By table of the request: its entry in Migration::previous, or null: there is none, or it is of
// another size, or there is no migration. Of a table that the plan names twice, the first entry
// counts. Any values may stand in the plan. Points into `request`. O(k log k) for k shards.
std::vector<const TablePlan*> TablesInPlace(const PlanRequest& request);

}  // namespace neuroshard
