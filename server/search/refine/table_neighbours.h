// Neighbours in which a table is laid out otherwise, or its wide parts go elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/refine/exchange.h"
#include "server/search/refine/exchange_pricer.h"
#include "server/search/refine/rough_estimate.h"
#include "server/search/refine/shard_book.h"
#include "server/search/refine/solution.h"
#include "server/search/refine/table_layouts.h"
#include "server/search/search_context.h"

namespace neuroshard {

class TableNeighbours {
 public:
  // All must outlive it.
  TableNeighbours(SearchContext& context, const CompiledRules& rules, const TableLayouts& layouts,
                  ShardBook& book);

  // Adds to `list`, for tables with a shard on `source` (those that cost it most): every layout
  // that the rules allow, at the ranks or hosts that stand lowest; a row-cut block on another host,
  // alone or in exchange; row_wise_subset without the source; a co-located group elsewhere. Fewer
  // when the context says stop.
  void Collect(Solution& solution, const ExchangePricer& pricer, int source, ExchangeList& list);

  // Lays some table out in some way, at the ranks or hosts that stand lowest. False: nothing
  // changed, for lack of room.
  bool RandomRelayout(Solution& solution, const ExchangePricer& pricer, Random& random);

 private:
  const std::vector<TableLayout>& LayoutsOf(int table);
  void Intern(int table);
  void ChooseTables(const Solution& solution, const ExchangePricer& pricer, int source);
  // How the ranks stand now, which LetLeave and Come start from.
  void SetStandings(const ExchangePricer& pricer);
  // How they would stand without leaving_, and with nothing come yet.
  void LetLeave(const Solution& solution, const ExchangePricer& pricer);
  void Count(const Solution& solution, const ExchangePricer& pricer, const Unit& unit, int sign);
  void Relayout(Solution& solution, const ExchangePricer& pricer, int table, ExchangeList& list);
  void MoveHostBlocks(Solution& solution, const ExchangePricer& pricer, int host,
                      ExchangeList& list);
  void MoveGroup(Solution& solution, const ExchangePricer& pricer, const std::vector<int>& group,
                 ExchangeList& list);
  // Appends the units of a layout to coming_. host, rank: the only one that will do; -1: any.
  // False: no room.
  bool Place(Solution& solution, const ExchangePricer& pricer, int table, const TableLayout& layout,
             int host, int rank);
  bool PlaceOnRank(Solution& solution, const ExchangePricer& pricer, Unit unit, int host, int rank);
  bool PlaceOnHost(Solution& solution, const ExchangePricer& pricer, Unit unit, int host);
  bool PlaceOnSubset(Solution& solution, const ExchangePricer& pricer, Unit unit, int holders,
                     int host);
  void Come(const Solution& solution, const ExchangePricer& pricer, const Unit& unit);
  // Fills hosts_, the lowest first.
  void SortHosts(const Solution& solution);
  bool Fits(const Solution& solution, int rank, std::int64_t bytes) const {
    return solution.Fits(rank, bytes + more_bytes_[static_cast<std::size_t>(rank)]);
  }

  SearchContext& context_;
  const CompiledRules& rules_;
  const TableLayouts& layouts_;
  ShardBook& book_;
  RoughEstimate rough_;
  std::vector<std::vector<TableLayout>> layouts_of_;  // by table; empty: not asked for yet

  // Of one Collect, kept for their memory.
  std::vector<int> tables_;
  std::vector<std::pair<double, int>> by_share_;
  std::vector<std::int64_t> widths_;
  std::vector<std::pair<double, int>> hosts_;  // with how high they stand
  std::vector<int> target_hosts_;
  std::vector<int> leaving_;
  std::vector<Unit> coming_;
  std::vector<double> now_ms_;       // by rank, as the solution is
  std::vector<double> standing_ms_;  // by rank, with what has left and come so far
  std::vector<std::int64_t> more_bytes_;
  std::vector<int> counted_;  // ranks of which the last two differ from now
  std::vector<int> lowest_;   // some ranks that stand lowest, and the `now_lowest_` first ones now
  std::size_t now_lowest_ = 0;
};

}  // namespace neuroshard
