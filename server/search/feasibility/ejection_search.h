// Search for a legal plan where room or rules leave few: tables without a place eject others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/feasibility/placed_bundles.h"

namespace neuroshard {

// Guided ejection search (Nagata and Braysy 2009, for vehicle routes). Bundles are placed one by
// one; the partial plan is always legal. A bundle that finds no place ejects a few others,
// preferably those that were easy to place before, and now and then placed bundles change places at
// random. Deterministic for the same calls. For one thread.
class EjectionSearch {
 public:
  // All arguments must outlive it.
  EjectionSearch(const PlanRequest& request, const CompiledRules& rules, PlacedBundles& placed,
                 const StopSignal& stop);

  // Sets where the bundle is in the plan in place, in layouts that its tables may have.
  void SetHome(int bundle, BundlePlacement home) { At(homes_, bundle) = std::move(home); }
  // Empty: none was set.
  const BundlePlacement& home(int bundle) const { return At(homes_, bundle); }

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

 private:
  const std::vector<int>& tables_of(int bundle) const { return placed_.tables_of(bundle); }
  std::int64_t left_bytes(int rank) const { return placed_.ledger().left_bytes(rank); }
  // Returns the bytes that this placement of the bundle moves; 0 without a migration.
  std::int64_t MovedBytes(int bundle, const BundlePlacement& placement) const;
  // Returns the bundles that the rules do not let stay if the bundle is placed so.
  std::vector<int> InTheWay(int bundle, const BundlePlacement& placement) const;
  void AddInTheWay(int table, int rank, std::vector<int>& bundles) const;

  bool PutSomewhere(int bundle);
  // Returns placements of a bundle, those that move fewest bytes first; `most` is TablePlaces'.
  std::vector<BundlePlacement> CandidatesFor(int bundle, std::size_t most) const;
  // A placement of a bundle, and the bundles that it ejects.
  struct Entry {
    BundlePlacement placement;
    std::vector<int> ejected;
    std::int64_t penalty = std::numeric_limits<std::int64_t>::max();
  };
  Entry CheapestEntry(int bundle);
  Entry EntryByForce(int bundle);
  // Puts the bundle there in place of those that are ejected if that is legal and then `rest`, which
  // may place more, returns true; else everything is where it was.
  template <typename Rest>
  bool PutInstead(int bundle, const BundlePlacement& placement, const std::vector<int>& ejected,
                  const Rest& rest);
  bool WouldFit(int bundle, const BundlePlacement& placement, const std::vector<int>& ejected);
  void Shuffle();
  bool TryWaiting(std::vector<int>& waiting, int ejections);

  const PlanRequest& request_;
  const CompiledRules& rules_;
  PlacedBundles& placed_;
  const StopSignal& stop_;
  const PreviousPlacement previous_;
  Random random_;
  std::int64_t steps_left_ = 0;
  std::vector<BundlePlacement> homes_;   // by bundle
  std::vector<std::int64_t> penalties_;  // by bundle: how often it found no place
};

}  // namespace neuroshard
