// Table places: the layouts of a table and where each may go.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/table_layouts.h"
#include "server/search/feasibility/arrangement.h"

namespace neuroshard {

// Of what concerns a table by itself everything holds: types, cuts, ranks, number of shards. Tables
// that may be in host memory or on SSD are there with the least device memory, those that may be in
// one of the two first, the largest first, while hosts have room for them in all.
class TablePlaces {
 public:
  // Both must outlive it.
  TablePlaces(const PlanRequest& request, const CompiledRules& rules);

  // All of the table on one rank, in as few shards as there can be. Without shards: that cannot be.
  TableArrangement OnRank(int table, int rank) const;

  // Calls `visit` with other ways, the simplest first, until it says true; whether it did. Of the
  // ways to cut a table so, all that differ in their places where these are `most` or fewer, else
  // the one that goes where `arrangement` has most room.
  using Visit = std::function<bool(const TableArrangement&)>;
  bool ForEachOther(int table, const Arrangement& arrangement, std::size_t most,
                    const Visit& visit) const;

  // The same with `laid` but for one block of columns, which goes elsewhere.
  bool ForEachShift(int table, const TableArrangement& laid, const Visit& visit) const;

 private:
  void ChooseResidencies();
  TableArrangement KeptOf(int table) const;  // where rules keep it, and there alone
  TableArrangement Arrange(int table, ShardingType type, std::span<const Block> columns,
                           std::span<const int> places) const;
  const Table& TableOf(int table) const { return request_.tables[static_cast<std::size_t>(table)]; }
  bool Offer(int table, ShardingType type, std::span<const Block> columns,
             std::span<const int> places, const Visit& visit) const;
  bool ForEachPlacesOf(int table, const TableLayout& layout, const Arrangement& arrangement,
                       std::size_t most, const Visit& visit) const;
  bool BlocksOn(int table, ShardingType type, std::span<const Block> columns,
                const std::vector<int>& among, const Arrangement& arrangement, std::size_t most,
                const Visit& visit) const;

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const TableLayouts table_layouts_;
  std::vector<Residency> residencies_;             // by table
  std::vector<std::vector<TableLayout>> layouts_;  // by table
};

}  // namespace neuroshard
