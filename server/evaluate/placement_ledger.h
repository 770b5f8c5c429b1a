// Placement ledger: a part of a plan that keeps every rule so far, and the tables without a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/domain/memory_pools.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/rules/rule_state.h"

namespace neuroshard {

// How a table is laid out; without shards: it has no place.
struct PlacedTable {
  ShardLayout layout = {};
  std::vector<Shard> shards = {};

  bool placed() const { return !shards.empty(); }
  bool operator==(const PlacedTable&) const = default;
};

// Rules on ranks (RuleState), memory of each rank and host and the migration budget; whether
// sharding type and shape of a layout are allowed is the caller's business. Shards are in range.
// A table's shards may come one after the other and go in the opposite order. O(shards) a change.
class PlacementLedger {
 public:
  // Nothing is placed. Both must outlive the ledger.
  PlacementLedger(const PlanRequest& request, const CompiledRules& rules);

  enum class Answer { kYes, kAgainstRules, kNoRoom, kOverBudget };

  // Places the shards if all of them may be where they are, else none; returns the rule in the way.
  // Row blocks of a host are as many as it has ranks, so that the blocks of a grid_shard table are
  // on hosts of one size; shards of a table whose kernel keeps apart are on ranks of their own.
  Answer Put(int table, const ShardLayout& layout, std::span<const Shard> shards);
  // After kNoRoom: the memory that lacks it.
  MemoryTier full_tier() const { return full_tier_; }
  // Without any check, e.g. for a plan made elsewhere.
  void PutAnyway(int table, const ShardLayout& layout, std::span<const Shard> shards);
  // What was put last of the table.
  void Take(int table, const ShardLayout& layout, std::span<const Shard> shards);
  // All of the table, which has no place afterwards.
  PlacedTable Take(int table);

  const PlacedTable& of(int table) const { return placed_[static_cast<std::size_t>(table)]; }
  // The request's tables as they are placed.
  Plan MakePlan() const;

  // Bytes that are free on the rank; below 0 where the reserve is more than it has.
  std::int64_t left_bytes(int rank) const { return pools_.LeftOnDevice(rank); }

 private:
  struct Amounts {
    TierBytes bytes;
    std::int64_t moved_bytes;
  };
  Amounts AmountsOf(int table, const ShardLayout& layout, const Shard& shard) const;
  void Add(int table, const ShardLayout& layout, const Shard& shard, const Amounts& amounts);
  Answer PutOne(int table, const ShardLayout& layout, const Shard& shard);

  const PlanRequest& request_;
  const CompiledRules& rules_;
  std::vector<PlacedTable> placed_;  // by table
  RuleState state_;
  MemoryPools pools_;
  MemoryTier full_tier_ = MemoryTier::kDevice;
  std::set<std::pair<int, int>> apart_;        // table, rank: of kernels that keep apart
  std::optional<PreviousPlacement> previous_;  // if there is a budget
  std::int64_t left_budget_bytes_ = 0;
};

}  // namespace neuroshard
