// Constraints: a caller's demands on a plan, beyond that it fits. Migration: the plan in place, and
// a budget or a price for moving weights away from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/domain/plan.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// A demand on each of `tables` by itself. Several rules may name a table; all of them hold. In
// every field empty or 0 is: no demand.
struct TableRule {
  std::vector<int> tables;  // indices into PlanRequest::tables, ascending, distinct, not empty
  std::vector<ShardingType> sharding_types;
  std::vector<ComputeKernel> compute_kernels;
  // Every shard on one of these, and on none of those. Ascending, distinct, existing.
  std::vector<int> ranks;
  std::vector<int> forbidden_ranks;
  std::vector<int> hosts;
  std::vector<int> forbidden_hosts;
  int max_shards = 0;                 // shards of a table, at least 1
  std::int64_t min_column_width = 0;  // columns of a shard, unless the table itself has fewer
  bool distinct_ranks = false;        // no two shards of a table on one rank
  double cache_load_factor = 0;       // where it is fused_uvm_caching or key_value, in (0, 1]
  std::int64_t row_multiple = 0;      // rows of a bucket that is not cut; divides those of `tables`
  std::optional<RowProportion> row_proportion = {};  // how row_wise cuts rows; none: evenly

  bool lists(ComputeKernel kernel) const {
    return std::ranges::find(compute_kernels, kernel) != compute_kernels.end();
  }
  bool lists_any_in(MemoryTier tier) const {
    return std::ranges::find(compute_kernels, tier, TierOf) != compute_kernels.end();
  }
  bool operator==(const TableRule&) const = default;
};

// The level at which the tables of a group are together or apart.
enum class GroupLevel { kRank, kHost };

// A demand on tables together. Co-located: all shards of all of them on one rank (or host).
// Separate: no rank (or host) has shards of two of them.
struct TableGroup {
  std::vector<int> tables;  // as in TableRule; two at least
  GroupLevel level = GroupLevel::kRank;

  bool operator==(const TableGroup&) const = default;
};

NS_WORDS(GroupLevel, {kRank, "rank"}, {kHost, "host"});

// All demands of a request. Tables are indices into PlanRequest::tables, ranks and hosts positions
// in the topology.
struct Constraints {
  // Types of the tables whose rules name none. Empty: those of the cost model
  // (BoundCostModel::sharding_types).
  std::vector<ShardingType> sharding_types;
  std::vector<TableRule> tables;
  std::vector<TableGroup> colocate;
  std::vector<TableGroup> separate;
  int max_shards_per_rank = 0;        // 0: any number
  int max_tables_per_rank = 0;        // tables with at least one shard on the rank; 0: any number
  int max_shards_per_table = 0;       // 0: any number
  std::int64_t min_column_width = 0;  // 0: kColumnAlignment
  ColumnRule column_rule = ColumnRule::kAny;
  // By rank, what rows are in proportion to under RowProportion::kMemory. Empty: the memory of its
  // device less the reserve. No demand of a caller: it keeps blocks as they are where a request is
  // looked at as if devices had any memory (server/evaluate/rules/demands.h).
  std::vector<std::int64_t> memory_weights = {};

  // No demand at all.
  bool empty() const { return *this == Constraints{}; }
  bool operator==(const Constraints&) const = default;
};

// Moved is every weight byte (rows x columns x weight type) of the new plan on a rank that did not
// hold that part of the table before in the same memory (ChangesMemory). Tables that the previous
// plan lacks, or has with another number of rows or columns, are new: placing them moves nothing.
struct Migration {
  Plan previous;                             // may lack tables, and have ones that are gone
  std::optional<std::int64_t> budget_bytes;  // none: any amount; 0: nothing moves
  double price_ms_per_gib = 0;  // added to the cost of a plan during search, not to its cost

  // Tables that are in place in one of these types keep type, kernel and load factor and may change
  // ranks and cuts; those in other types stay exactly as they are. Empty: all may change.
  std::vector<ShardingType> only_types = {};

  bool operator==(const Migration&) const = default;
};

}  // namespace neuroshard
