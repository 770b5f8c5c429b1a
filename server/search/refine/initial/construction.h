// Construction of a solution from nothing: a layout for every table, then greedy placement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/objective/comm_surrogate.h"
#include "server/search/refine/solution.h"
#include "server/search/search_context.h"

namespace neuroshard {

// A layout with its price and size, summed over its shards, and those of its largest shard.
struct PricedLayout {
  TableLayout layout;
  double price_ms = 0;
  double peak_ms = 0;
  std::int64_t bytes = 0;
  std::int64_t peak_bytes = 0;
};

// Greedy construction for a given choice of layouts. Build leaves a solution that keeps memory and
// all rules, or says which table found no place; it takes time in units x ranks (hosts). For one
// thread.
class Construction {
 public:
  // All must outlive the construction.
  Construction(SearchContext& context, const CompiledRules& rules, const TableLayouts& layouts,
               ShardTable& shard_table);

  // By table: its first layout, and all of them. What a shard costs is taken to be its compute
  // alone plus its load times what `surrogate` says. Empty for a table that has no layout;
  // no tables at all when the context says stop.
  // residencies: of each table; data_parallel, which is in device memory, is among the layouts too.
  std::vector<std::vector<PricedLayout>> FirstLayouts(const std::vector<int>& residencies,
                                                      const CommSurrogate& surrogate);
  std::vector<std::vector<PricedLayout>> AllLayouts(const std::vector<int>& residencies,
                                                    const CommSurrogate& surrogate);

  // One layout a table.
  using Choice = std::vector<PricedLayout>;

  // Of what is placed first: the largest price or bytes, summed over a table's shards that go
  // somewhere together, or the largest price of a single shard.
  enum class Order { kByPrice, kByPeak, kByBytes };

  // Replaces what `solution` holds. Tables in descending `urgency`, then in the given order, each
  // to the ranks (hosts) with the lowest sum of prices where memory and rules allow it; one that
  // finds no place takes less device memory (TableRules::residencies) unless all are chosen to be
  // in device memory, where other cuts come first. Returns the
  // table that found no place, and leaves the solution incomplete then; -1: all did.
  int Build(const Choice& choice, Order order, const std::vector<int>& urgency,
            const CommSurrogate& surrogate, Solution& solution);

 private:
  struct Item {
    std::vector<int> tables;  // more than one: a group that goes to one place
    std::int64_t cols = 0;    // > 0: a block of a single table that may go anywhere by itself
    int urgency = 0;
    double key = 0;
  };

  // The first `most` layouts of each table.
  std::vector<std::vector<PricedLayout>> Price(std::size_t most,
                                               const std::vector<int>& residencies,
                                               const CommSurrogate& surrogate);
  double PriceOf(int shard, const CommSurrogate& surrogate) const;
  double PriceOn(int rank, int shard) const;
  std::vector<Item> ItemsOf(const Choice& choice, Order order,
                            const std::vector<int>& urgency) const;
  bool Place(const Item& item, const Choice& choice, Solution& solution);
  // Lays all of the table out anew in a residency with less device memory.
  bool PlaceDemoted(int table, TableLayout layout, Solution& solution);
  bool PlaceTable(int table, const TableLayout& layout, int host, int rank, Solution& solution);
  bool PlaceBlock(Unit unit, int ranks_of, int host, int rank, Solution& solution);
  bool PlaceGroup(const Item& item, const Choice& choice, Solution& solution);
  void Add(const Unit& unit, Solution& solution);
  // Takes units off again until `count` are left.
  void Undo(std::size_t count, Solution& solution);

  SearchContext& context_;
  const CompiledRules& rules_;
  const TableLayouts& layouts_;
  ShardTable& shard_table_;
  const std::vector<int> numbers_;  // of all ranks, and of hosts
  CommSurrogate surrogate_;
  std::vector<double> price_ms_;  // by rank
  std::vector<int> added_;        // unit ids in order
  bool demotes_ = false;          // some table is in host memory by choice
  std::vector<bool> demoted_;     // by table: all of it is placed
};

}  // namespace neuroshard
