// A part of a plan that keeps every rule so far, and the tables that have no place yet.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"
#include "server/evaluate/placement_ledger.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// How a table is laid out; without shards: it has no place.
struct TableArrangement {
  ShardingType type = ShardingType::kTableWise;
  std::vector<Shard> shards;
  Residency residency = {};
  bool in_proportion = false;  // ShardLayout's

  bool placed() const { return !shards.empty(); }
  ShardLayout layout() const {
    ShardLayout layout =
        LayoutIn(residency, type, LayoutOf(type, KernelOf(type), shards).row_shards);
    layout.in_proportion = in_proportion;
    return layout;
  }
  bool operator==(const TableArrangement&) const = default;
};

// Rules on ranks, memory and the migration budget hold at any time (PlacementLedger); which types
// and cuts a table may have is the caller's business. O(shards of the table) a change.
class Arrangement {
 public:
  // No table has a place. Both must outlive it.
  Arrangement(const PlanRequest& request, const CompiledRules& rules);

  // Whether the table, which has no place, could be laid out so; then it is.
  bool Put(int table, TableArrangement laid);
  // The table has a place, which is given back.
  TableArrangement Take(int table);

  const TableArrangement& of(int table) const { return laid_[static_cast<std::size_t>(table)]; }
  // With a shard there, each once, in no particular order but the same for the same history.
  std::span<const int> tables_on(int rank) const {
    return tables_on_[static_cast<std::size_t>(rank)];
  }
  // Of the table on the rank; 0: none.
  std::int64_t BytesOn(int table, int rank) const;
  std::int64_t left_bytes(int rank) const { return ledger_.left_bytes(rank); }

  // Every table has a place.
  Plan MakePlan() const;

 private:
  const PlanRequest& request_;
  PlacementLedger ledger_;
  std::vector<TableArrangement> laid_;
  std::vector<std::vector<int>> tables_on_;
};

// Of a table laid out so: what one of its shards takes.
std::int64_t ShardBytes(const PlanRequest& request, int table, const TableArrangement& laid,
                        const Shard& shard);

}  // namespace neuroshard
