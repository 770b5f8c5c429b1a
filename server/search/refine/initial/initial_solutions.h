// Initial solutions of local search: a first legal one at once, then constructions that trade work
// for evenness.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "common/base/random.h"
#include "server/search/core/search_context.h"
#include "server/search/refine/initial/construction.h"
#include "server/search/refine/initial/memory_knapsack.h"
#include "server/search/refine/objective/workbench.h"
#include "server/search/refine/solution/solution.h"

namespace neuroshard {

// Constructions for one request, with layouts that are priced once for all of them. Solutions it
// leaves are legal; FindCheap and Restart leave them priced by the pricer. FindLegal takes one
// construction where nothing is scarce, FindCheap up to 40, Restart 30. For one thread.
class InitialSolutions : MoveTools {
 public:
  // `bench` must outlive it.
  explicit InitialSolutions(Workbench& bench);

  // Any legal solution, as quickly as it can be had. FAILED_PRECONDITION, which no caller sees since
  // FindAnyPlan has the last word, when none was found; OK without one when the context said stop.
  Status FindLegal();

  // Makes several constructions and leaves the one to begin at. In each, no shard costs more than a
  // limit, and every table has the layout that takes the least work within it; limits go from the
  // costliest shard down to a fraction of an even share. The cheapest is handed to the context;
  // where the search also begins at it, kCheapest. kNone: none is legal.
  enum class Found { kNone, kCheapest, kPromising };
  StatusOr<Found> FindCheap();

  // Every table in the smallest shards that it may have, which no limit of FindCheap gets to where
  // tables are of very different sizes. False: it is not legal, or the context says stop; the
  // solution is void then.
  bool CutAll();

  // Another solution to begin at: of some constructions with limits around the best cost known and
  // with prices that are off at random, the one that promises most. False: none is legal, or the
  // context says stop; the solution is void then.
  bool Restart(double best_cost_ms, Random& random);

 private:
  // Builds the choice. Where hosts have memory for tables, and in every restart, a table that finds
  // no place may have any of the layouts. First constructions on devices alone do without: where
  // memory is scarce the search begins better at a plan for which tables were cut smaller.
  bool Build(const Construction::Choice& choice, Construction::Order order,
             const PricedLayouts& layouts, double limit_ms, bool is_restart = false);

  // In the order by price, then by bytes. True: also where the context says stop meanwhile.
  bool BuildFirst(const Construction::Choice& choice, const PricedLayouts& layouts);

  // False: the context says stop.
  bool PredictWholeTables();
  // The layouts of residencies_, priced once; empty where the context says stop.
  const PricedLayouts& AllLayouts();

  // Lets every table be in the residency that it has in FillMemories of whole tables, for each of
  // the shares of the device memory, and in the two ends of its list.
  void SetResidencies(std::span<const double> fills, bool with_ends);
  // What a shard may take.
  struct Limit {
    double ms = std::numeric_limits<double>::infinity();
    // Whether tables that every rank has may take more: no rank is slower than others for them.
    bool spares_every_rank = false;
  };
  // Per table the layout with the least price whose largest shard is within the limit where that is
  // possible. Where hosts have memory for tables, all tables together take `fill` of the device
  // memory, and a shard's excess over the limit counts as if every rank took so much longer.
  // `noise`: makes every price a little larger; null: as they are.
  Construction::Choice Choose(const PricedLayouts& layouts, const Limit& limit, double fill,
                              Random* noise);
  // A choice under a limit on what a shard takes.
  struct LimitedChoice {
    Construction::Choice choice;
    double limit_ms = 0;
  };
  std::vector<LimitedChoice> Choices(double fill);
  // Leaves those that promise the lowest cost: the longer of the largest shard's time and an even
  // share of all.
  void KeepPromising(std::vector<LimitedChoice>& choices) const;
  // The units with the lowest value of all that were offered; none: nothing was.
  struct Best {
    double value_ms = std::numeric_limits<double>::infinity();
    std::vector<Unit> units = {};

    // Whether the value is lower than all before, and the units are the offered ones now.
    template <typename Units>
    bool Offer(double offered_ms, const Units& offered) {
      if (offered_ms >= value_ms) return false;
      value_ms = offered_ms;
      units = offered();
      return true;
    }
  };
  // Offers the greedy grid's placements of the choices.
  void OfferGrid(const std::vector<LimitedChoice>& choices, Best& best);
  // False: the context said stop.
  bool Load(const std::vector<Unit>& units);
  bool Repair(const PricedLayouts& layouts);

  Construction construction_;
  // By table: its residencies with more and more bytes of device memory, and what it is in each, on
  // one rank.
  Construction::Residencies whole_residencies_;
  std::vector<std::vector<TableHolding>> whole_tables_;
  Construction::Residencies residencies_;  // that all_layouts_ are in
  PricedLayouts all_layouts_;
  std::vector<int> urgency_;                         // by table
  std::vector<std::vector<TableHolding>> holdings_;  // by table, of one Choose, kept for its memory
};

}  // namespace neuroshard
