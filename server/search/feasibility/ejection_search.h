// Legal plans where room or rules leave few: tables without a place take that of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/placement_ledger.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/feasibility/table_places.h"

namespace neuroshard {

// Guided ejection search (Nagata and Braysy 2009, there for vehicle routes). What has a place is
// always legal. A table (with those on its rank by rule: a bundle) that finds none takes the place
// of a few others, those that were hardest to place before staying, and now and then what has
// places changes them at random. Deterministic for the same calls.
class EjectionSearch {
 public:
  // All must outlive it.
  EjectionSearch(const PlanRequest& request, const CompiledRules& rules, const StopSignal& stop);

  const PlacementLedger& ledger() const { return ledger_; }
  // Bundles, in descending bytes; the tables of each.
  const std::vector<std::vector<int>>& bundles() const { return bundles_; }
  int bundle_of(int table) const { return bundle_of_[static_cast<std::size_t>(table)]; }

  // Where the plan in place has the table, in a way that it may have by itself.
  void SetHome(int table, const TablePlan& plan) {
    homes_[static_cast<std::size_t>(table)] = places_.As(table, plan);
  }
  const PlacedTable& home(int table) const { return homes_[static_cast<std::size_t>(table)]; }

  // A bundle's tables as they are to be; only what is legal is done. All have a place, or none.
  using Ways = std::vector<PlacedTable>;  // of the bundle's tables
  bool Put(int bundle, const Ways& ways);
  Ways Take(int bundle);
  bool placed(int bundle) const;
  // All of it on that rank, in as few shards as there can be; empty: that cannot be. And the bytes
  // of it.
  Ways OnRank(int bundle, int rank) const;
  std::int64_t BytesOnOneRank(int bundle) const {
    return on_rank_bytes_[static_cast<std::size_t>(bundle)];
  }

  // Gives places to all of `waiting`, by at most `ejections` ejections, moving as few bytes as the
  // first way that works does; false, with nothing changed, where `steps_left` or all ways end.
  bool PlaceByTrying(std::vector<int> waiting, int ejections, std::int64_t& steps_left);

  // The same without a limit on ejections, and with what is placed then on failure. A step is an
  // attempt to put a bundle somewhere.
  bool PlaceByEjecting(std::vector<int> waiting, std::int64_t& steps_left);

  // Of a table laid out so: what one of its shards takes.
  std::int64_t ShardBytes(int table, const PlacedTable& laid, const Shard& shard) const;

  // Bytes that the bundle moves in these ways; 0 without a migration.
  std::int64_t MovedBytes(int bundle, const Ways& ways) const;

 private:
  const std::vector<int>& tables_of(int bundle) const {
    return bundles_[static_cast<std::size_t>(bundle)];
  }
  std::int64_t BytesOn(int bundle, int rank) const;
  std::vector<int> BundlesOn(int rank) const;
  PlacedTable TakeTable(int table);
  // Whom the rules do not let stay where they are if the bundle comes to the rank.
  std::vector<int> InTheWay(int bundle, int rank) const;
  void AddInTheWay(int table, int rank, std::vector<int>& bundles) const;

  bool PutSomewhere(int bundle, std::int64_t& steps_left);
  // Those that move fewest bytes first; `most` as in TablePlaces.
  std::vector<Ways> WaysOf(int bundle, std::size_t most) const;
  // The ways of the bundle and whom it ejects for them.
  struct Entry {
    Ways ways;
    std::vector<int> ejected;
    std::int64_t penalty = 0;
  };
  Entry CheapestEntry(int bundle, std::int64_t& steps_left);
  Entry EntryByForce(int bundle, std::int64_t& steps_left);
  bool WouldFit(int bundle, const Ways& ways, const std::vector<int>& ejected,
                std::int64_t& steps_left);
  void Shuffle(std::int64_t& steps_left);
  bool TryWaiting(std::vector<int>& waiting, int ejections, std::int64_t& steps_left);

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const StopSignal& stop_;
  const TablePlaces places_;
  const PreviousPlacement previous_;
  PlacementLedger ledger_;
  std::vector<std::vector<int>> tables_on_;  // by rank, each once, in the order of their coming
  Random random_;
  std::vector<PlacedTable> homes_;  // by table
  std::vector<std::vector<int>> bundles_;
  std::vector<int> bundle_of_;  // by table
  std::vector<Ways> on_rank_;   // by bundle: on some rank
  std::vector<std::int64_t> on_rank_bytes_;
  std::vector<std::int64_t> penalties_;  // how often a bundle found no place
};

}  // namespace neuroshard
