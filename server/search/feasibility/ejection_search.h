// Search for a legal plan where room or rules leave few: tables without a place eject others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/placement_ledger.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/feasibility/table_places.h"

namespace neuroshard {

// Guided ejection search (Nagata and Braysy 2009, for vehicle routes). Bundles, tables that rules
// keep on one rank, are placed one by one; the partial plan is always legal. A bundle that finds no
// place ejects a few others, preferably those that were easy to place before, and now and then
// placed bundles change places at random. Deterministic for the same calls. For one thread.
class EjectionSearch {
 public:
  // All arguments must outlive it.
  EjectionSearch(const PlanRequest& request, const CompiledRules& rules, const StopSignal& stop);

  const PlacementLedger& ledger() const { return ledger_; }
  // Tables of each bundle, in descending bytes.
  const std::vector<std::vector<int>>& bundles() const { return bundles_; }
  int bundle_of(int table) const { return At(bundle_of_, table); }

  // Sets the place of the table in the plan in place, in a layout that the table may have.
  void SetHome(int table, const TablePlan& plan) { At(homes_, table) = places_.As(table, plan); }
  const PlacedTable& home(int table) const { return At(homes_, table); }

  // Placement of a bundle: of each of its tables, in order. Put places a bundle if that is legal; a
  // bundle is placed as a whole or not at all. Take removes it and returns where it was.
  using BundlePlacement = std::vector<PlacedTable>;
  bool Put(int bundle, const BundlePlacement& placement);
  BundlePlacement Take(int bundle);
  bool placed(int bundle) const;
  // Returns the bundle on that rank, in as few shards as possible; empty: impossible.
  // BytesOnOneRank has its bytes.
  BundlePlacement OnRank(int bundle, int rank) const;
  std::int64_t BytesOnOneRank(int bundle) const { return At(on_rank_bytes_, bundle); }

  // Sets the steps that the next calls may take together. A step is an attempt to put a bundle
  // somewhere.
  void GiveSteps(std::int64_t steps) { steps_left_ = steps; }
  bool has_steps() const { return steps_left_ > 0; }

  // Places all of `waiting` by at most `ejections` ejections, moving as few bytes as the first
  // solution found does. Returns false, with nothing changed, when the steps or all alternatives
  // are used up.
  bool PlaceByTrying(std::vector<int> waiting, int ejections);

  // Places all of `waiting` without a limit on ejections; on failure keeps what is placed then.
  bool PlaceByEjecting(std::vector<int> waiting);

  // Returns the bytes of a shard of a placed table.
  std::int64_t ShardBytes(int table, const PlacedTable& placed_table, const Shard& shard) const;

  // Returns the bytes that this placement of the bundle moves; 0 without a migration.
  std::int64_t MovedBytes(int bundle, const BundlePlacement& placement) const;

 private:
  const std::vector<int>& tables_of(int bundle) const { return At(bundles_, bundle); }
  std::int64_t BytesOn(int bundle, int rank) const;
  std::vector<int> BundlesOn(int rank) const;
  PlacedTable TakeTable(int table);
  // Returns the bundles that the rules do not let stay if the bundle comes to the rank.
  std::vector<int> InTheWay(int bundle, int rank) const;
  void AddInTheWay(int table, int rank, std::vector<int>& bundles) const;

  bool PutSomewhere(int bundle);
  // Returns placements of a bundle, those that move fewest bytes first; `most` is TablePlaces'.
  std::vector<BundlePlacement> CandidatesFor(int bundle, std::size_t most) const;
  // A placement of a bundle, and the bundles that it ejects.
  struct Entry {
    BundlePlacement placement;
    std::vector<int> ejected;
    std::int64_t penalty = 0;
  };
  Entry CheapestEntry(int bundle);
  Entry EntryByForce(int bundle);
  bool WouldFit(int bundle, const BundlePlacement& placement, const std::vector<int>& ejected);
  void Shuffle();
  bool TryWaiting(std::vector<int>& waiting, int ejections);

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const StopSignal& stop_;
  const TablePlaces places_;
  const PreviousPlacement previous_;
  PlacementLedger ledger_;
  std::vector<std::vector<int>> tables_on_;  // by rank, each once, in the order of their coming
  Random random_;
  std::int64_t steps_left_ = 0;
  std::vector<PlacedTable> homes_;  // by table
  std::vector<std::vector<int>> bundles_;
  std::vector<int> bundle_of_;            // by table
  std::vector<BundlePlacement> on_rank_;  // by bundle: on some rank
  std::vector<std::int64_t> on_rank_bytes_;
  std::vector<std::int64_t> penalties_;  // how often a bundle found no place
};

}  // namespace neuroshard
