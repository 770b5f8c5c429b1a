// The layouts of a table and the places where each may go.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/placement_ledger.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/table_layouts.h"

namespace neuroshard {

// Enumerates placements of single tables that keep all rules on the table alone: types, cuts,
// ranks, number of shards. Tables that may be in host memory or on SSD are there with the least
// device memory while hosts have room for all: first those that may be in only one of the two, and
// the largest first. Immutable, so thread-safe.
class TablePlaces {
 public:
  // Both arguments must outlive it.
  TablePlaces(const PlanRequest& request, const CompiledRules& rules);

  // Returns the whole table on one rank, in as few shards as possible; without shards: impossible.
  PlacedTable OnRank(int table, int rank) const;

  // Calls `visit` with other placements, the simplest first, until it returns true, and returns
  // whether it did. Of each way to cut the table, all assignments of its parts are visited where
  // these are at most `most`, else the one that goes where `placed` leaves the most room.
  using Visit = std::function<bool(const PlacedTable&)>;
  bool ForEachOther(int table, const PlacementLedger& placed, std::size_t most,
                    const Visit& visit) const;

  // Visits placements that differ from the given one in the rank of one block of columns.
  bool ForEachShift(int table, const PlacedTable& placed_table, const Visit& visit) const;

  // Returns the table as the plan has it.
  PlacedTable As(int table, const TablePlan& plan) const {
    return {LayoutIn(ResidencyOf(plan), plan.sharding_type, LayoutOf(plan).row_shards,
                     rules_.row_cut(table)),
            plan.shards};
  }

 private:
  void ChooseResidencies();
  PlacedTable Arrange(int table, ShardingType type, std::span<const Block> columns,
                      std::span<const int> places) const;
  const Table& TableOf(int table) const { return request_.tables[static_cast<std::size_t>(table)]; }
  bool Offer(int table, ShardingType type, std::span<const Block> columns,
             std::span<const int> places, const Visit& visit) const;
  bool ForEachPlacesOf(int table, const TableLayout& layout, const PlacementLedger& placed,
                       std::size_t most, const Visit& visit) const;
  bool BlocksOn(int table, ShardingType type, std::span<const Block> columns,
                const std::vector<int>& among, const PlacementLedger& placed, std::size_t most,
                const Visit& visit) const;

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const TableLayouts table_layouts_;
  std::vector<Residency> residencies_;             // by table
  std::vector<std::vector<TableLayout>> layouts_;  // by table
};

}  // namespace neuroshard
