// Construction of a solution from nothing: a layout for every table, then greedy placement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/search_context.h"
#include "server/search/core/shard_table.h"
#include "server/search/core/table_layouts.h"
#include "server/search/refine/objective/objective.h"
#include "server/search/refine/objective/workbench.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// A layout with its price and size, summed over its shards, and those of its largest shard.
struct PricedLayout {
  TableLayout layout;
  double price_ms = 0;
  double peak_ms = 0;
  TierBytes bytes = {};
  TierBytes peak_bytes = {};
};

// By table.
using PricedLayouts = std::vector<std::vector<PricedLayout>>;

// What a table in no group that finds no place may have instead: the cheapest layout that has a
// place, a shard's excess over the limit counted as if every rank took so much longer.
struct ConstructionFallback {
  const PricedLayouts* layouts = nullptr;  // null: nothing
  double limit_ms = 0;
};

// Greedy construction for a given choice of layouts. Build leaves a solution that keeps memory and
// all rules, or says which table found no place; it takes time in units x ranks (hosts). For one
// thread.
class Construction : MoveTools {
 public:
  // `bench` must outlive it.
  explicit Construction(Workbench& bench);

  // By table: the positions in CompiledRules::residencies() that it may have, in any order.
  using Residencies = std::vector<std::vector<int>>;

  // By table: its first layout in each residency (with host memory the first whose shards are not
  // too large, and in device memory all of a table that takes half a rank), and all of them. With
  // host memory in ascending order of device bytes; data_parallel is among all layouts of a table
  // that may have it, also where the table may otherwise be in host memory only. What a shard costs
  // is taken to be its shard_cost_ms plus its load times what the surrogate says. Empty for a table
  // that has no layout; no tables at all when the context says stop.
  PricedLayouts FirstLayouts(const Residencies& residencies) { return Price(1, residencies); }
  PricedLayouts AllLayouts(const Residencies& residencies) {
    return Price(std::numeric_limits<std::size_t>::max(), residencies);
  }

  // Memory for tables, of all ranks and hosts.
  const ByTier<double>& room_bytes() const { return room_bytes_; }

  // Whether no rank has memory for a shard with so many bytes.
  bool IsTooLarge(const TierBytes& bytes) const;

  // One layout a table.
  using Choice = std::vector<PricedLayout>;

  // What is placed first: the largest price or bytes, summed over a table's shards that go
  // somewhere together, or the largest price of a single shard.
  enum class Order { kByPrice, kByPeak, kByBytes };

  // Replaces what the solution holds. Tables in descending `urgency`, then in the given order, each
  // to the ranks (hosts) with the lowest sum of prices where memory and rules allow it. Returns the
  // table that found no place, and leaves the solution incomplete then; -1: all did.
  int Build(const Choice& choice, Order order, const std::vector<int>& urgency,
            ConstructionFallback fallback = {});

 private:
  struct Item {
    std::vector<int> tables;  // more than one: a group that goes to one place
    std::int64_t cols = 0;    // > 0: a block of a single table that may go anywhere by itself
    int urgency = 0;
    double key = 0;
  };

  // The first `most` layouts of each table in each residency.
  PricedLayouts Price(std::size_t most, const Residencies& residencies);
  // Whether the table, whole, takes more than half of a rank's device memory.
  bool IsLarge(int table);
  // Calls visit(cols, blocks) for the widths of a layout and how many blocks have them.
  template <typename Visit>
  void ForEachWidth(int table, const TableLayout& layout, const Visit& visit);
  // Whether a shard of it is; makes all of them known to the table of shards.
  bool IsTooLarge(int table, const TableLayout& layout);
  double PriceOf(int shard) const;
  double PriceOn(int rank, int shard) const;
  std::vector<Item> ItemsOf(const Choice& choice, Order order,
                            const std::vector<int>& urgency) const;
  bool Place(const Item& item, const Choice& choice);
  // Lays all of the table out as the fallback says.
  bool PlaceOtherwise(int table);
  bool PlaceTable(int table, const TableLayout& layout, int host, int rank);
  bool PlaceBlock(Unit unit, int ranks_of, int host, int rank);
  bool PlaceGroup(const Item& item, const Choice& choice);
  // Empties ranks, and sets the prices of memory for tables that have this price together.
  void Reset(double price_ms);
  // What the layout takes of memory, at these prices.
  double MemoryMs(const TierBytes& bytes) const;
  // Adds a shard to what its rank holds, or takes it away.
  void Count(int rank, int shard, int sign);
  void Count(const Unit& unit, int sign);
  void Add(const Unit& unit);
  void RemoveUnitsOf(int table);
  // Takes units off again until `count` are left.
  void Undo(std::size_t count);

  const CommSurrogate& surrogate_;
  const std::vector<int> numbers_;  // of all ranks, and of hosts
  ByTier<double> room_bytes_ = {};
  TierBytes largest_room_ = {};  // of the rank with the most
  ConstructionFallback fallback_;
  // By rank: what is placed there, and how full that makes it: the largest of its price and its
  // memories, each at a price at which the memory of all costs as much as all tables. Where all is
  // in device memory, memory has no price.
  std::vector<double> price_ms_;
  std::vector<ByTier<double>> bytes_;
  std::vector<double> value_ms_;
  ByTier<double> ms_a_byte_ = {};
  std::vector<int> added_;              // unit ids in order
  bool leaves_device_ = false;          // some table of the choice does
  std::vector<bool> placed_otherwise_;  // by table: all of it is
  std::vector<std::int64_t> widths_;    // of one ForEachWidth, kept for its memory
};

}  // namespace neuroshard
