// Table places: the layouts of a table and where each may go.
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

// Of what concerns a table by itself everything holds: types, cuts, ranks, number of shards. Tables
// that may be in host memory or on SSD are there with the least device memory, those that may be in
// one of the two first, the largest first, while hosts have room for them in all.
class TablePlaces {
 public:
  // Both must outlive it.
  TablePlaces(const PlanRequest& request, const CompiledRules& rules);

  // All of the table on one rank, in as few shards as there can be. Without shards: that cannot be.
  PlacedTable OnRank(int table, int rank) const;

  // Calls `visit` with other ways, the simplest first, until it says true; whether it did. Of the
  // ways to cut a table so, all that differ in their places where these are `most` or fewer, else
  // the one that goes where `placed` leaves most room.
  using Visit = std::function<bool(const PlacedTable&)>;
  bool ForEachOther(int table, const PlacementLedger& placed, std::size_t most,
                    const Visit& visit) const;

  // The same with `laid` but for one block of columns, which goes elsewhere.
  bool ForEachShift(int table, const PlacedTable& laid, const Visit& visit) const;

  // As the plan has the table.
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
