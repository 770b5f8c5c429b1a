// Neighbours that relieve one rank: columns, whole shards and pairs of shards that change ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "server/search/refine/compute_memo.h"
#include "server/search/refine/exchange.h"
#include "server/search/refine/exchange_pricer.h"
#include "server/search/refine/shard_book.h"
#include "server/search/refine/solution.h"
#include "server/search/refine/table_layouts.h"
#include "server/search/search_context.h"

namespace neuroshard {

enum class Reach {
  kNear,  // columns of a shard go to another rank (all of them: a move); two shards swap
  kFar    // also: a shard, or as many columns, come back for columns that go; a shard that makes
          // room for another goes on
};

class RankNeighbours {
 public:
  // All must outlive it.
  RankNeighbours(SearchContext& context, const TableLayouts& layouts, ShardBook& book,
                 ComputeMemo& memo);

  // Adds to `list` what relieves `source`, with estimates by `pricer`.
  void Collect(const Solution& solution, const ExchangePricer& pricer, int source, Reach reach,
               ExchangeList& list);

 private:
  // Some or all columns of a unit on the source.
  struct Part {
    int unit = 0;
    std::int64_t cols = 0;
    Unit left;  // what stays; cols 0: nothing
    // As what goes arrives where the table has nothing yet, and where it does; none: not allowed.
    std::optional<Unit> arriving = std::nullopt;
    std::optional<ShardingType> joined_type = std::nullopt;
    ComputeMemo::Slot source_slot = 0;
  };
  // A part that goes to a target, joining what the target has of the table.
  struct Transfer {
    int part = 0;
    int target = 0;   // index into targets_
    int joined = -1;  // unit
    Unit arriving;    // as it will be there
    ComputeMemo::Slot target_slot = 0;
  };
  // Some or all columns of a unit on a target that come to the source, joining what it has of the
  // table.
  struct Return {
    int unit = 0;
    int target = 0;   // index into targets_
    int joined = -1;  // unit on the source
    std::int64_t cols = 0;
    Unit left = {};      // what stays; cols 0: nothing
    Unit arriving = {};  // as it will be on the source
    ComputeMemo::Slot target_slot = 0;
    ComputeMemo::Slot source_slot = 0;

    bool whole() const { return left.cols == 0; }
  };

  void ChooseTargets(const Solution& solution, const Outlook& outlook, int source);
  void ListParts(const Solution& solution, int source);
  void ListTransfers(const Solution& solution);
  void ListReturns(const Solution& solution, int source, Reach reach);
  void ListReturnsOf(const Solution& solution, int id, int target, int source, Reach reach);
  void FindSlots(const Solution& solution, int source);

  void ListTargetsOf(const Solution& solution, const Unit& unit);
  void AddTransfers(const Solution& solution, const ExchangePricer& pricer, int source,
                    ExchangeList& list);
  void AddSwaps(const Solution& solution, const ExchangePricer& pricer, int source, Reach reach,
                ExchangeList& list);
  void FindOnward(const Solution& solution);
  void AddChains(const Solution& solution, const ExchangePricer& pricer, int source,
                 ExchangeList& list);

  std::int64_t BytesOf(const Unit& unit) const {
    return unit.cols == 0 ? 0 : book_.bytes(unit.shards.full);
  }
  CommLoad LoadOf(const Unit& unit) const {
    return unit.cols == 0 ? CommLoad{} : book_.load(unit.shards.full);
  }

  SearchContext& context_;
  const TableLayouts& layouts_;
  ShardBook& book_;
  ComputeMemo& memo_;

  // Of one Collect, kept for their memory.
  std::vector<int> targets_;
  std::vector<Part> parts_;
  std::vector<Transfer> transfers_;
  std::vector<Return> returns_;
  std::vector<std::size_t> returns_end_;   // by target, one more
  std::vector<int> target_of_rank_;        // -1: none
  std::vector<int> joined_;                // by target: the unit of a table there, or -1
  std::vector<Outlook::Others> others_;    // by target: than it and the source
  std::vector<ComputeMemo::Slot> onward_;  // by return and target: of the target with it
};

}  // namespace neuroshard
