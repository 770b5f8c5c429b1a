// Placed bundles: what the searches for a legal plan put on ranks and take back.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/positions.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/placement_ledger.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/feasibility/table_places.h"

namespace neuroshard {

// Where each table of a bundle is, in the bundle's order.
using BundlePlacement = std::vector<PlacedTable>;

// The tables of a request in bundles, which rules keep on one rank each, in descending bytes; a
// table that no rule keeps beside another is a bundle of its own. A bundle is placed as a whole or
// not at all, and what is placed keeps all rules. For one thread.
class PlacedBundles {
 public:
  // Nothing is placed. Both arguments must outlive it.
  PlacedBundles(const PlanRequest& request, const CompiledRules& rules);

  const PlacementLedger& ledger() const { return ledger_; }
  const TablePlaces& places() const { return places_; }
  int size() const { return static_cast<int>(bundles_.size()); }
  const std::vector<int>& tables_of(int bundle) const { return At(bundles_, bundle).tables; }
  int bundle_of(int table) const { return At(bundle_of_, table); }
  // Ranks that its tables may be on.
  const std::vector<int>& ranks_of(int bundle) const {
    return rules_.of(tables_of(bundle).front()).ranks->ranks();
  }
  bool placed(int bundle) const { return ledger_.of(tables_of(bundle).front()).placed(); }
  bool IsAt(int bundle, const BundlePlacement& placement) const {
    return std::ranges::equal(
        tables_of(bundle), placement,
        {}, [&](int table) -> const auto& { return ledger_.of(table); });
  }
  // Bundles without a place, ascending.
  std::vector<int> Waiting() const;

  // Places a bundle that has no place, if that is legal.
  bool Put(int bundle, const BundlePlacement& placement);
  // Removes a bundle and returns where it was.
  BundlePlacement Take(int bundle);

  // Returns the bundle on that rank, in as few shards as possible; empty: impossible.
  // BytesOnOneRank has its bytes.
  BundlePlacement OnRank(int bundle, int rank) const;
  bool CanBeOnOneRank(int bundle) const { return !At(bundles_, bundle).on_rank.empty(); }
  std::int64_t BytesOnOneRank(int bundle) const { return At(bundles_, bundle).on_rank_bytes; }

  // Returns the bundles with a shard on the rank, in the order of their coming.
  std::vector<int> BundlesOn(int rank) const;
  // Returns the bytes that a bundle takes on the rank. Where each of its tables has one shard that
  // is BytesOnOneRank, whatever rank it is on.
  std::int64_t BytesOn(int bundle, int rank) const;
  // Returns the bytes of a shard of a table that is placed so.
  std::int64_t ShardBytes(int table, const PlacedTable& placed_table, const Shard& shard) const;

 private:
  struct Bundle {
    std::vector<int> tables;
    BundlePlacement on_rank;  // on some rank
    std::int64_t on_rank_bytes = 0;
  };

  PlacedTable TakeTable(int table);

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const TablePlaces places_;
  PlacementLedger ledger_;
  std::vector<std::vector<int>> tables_on_;  // by rank, each once, in the order of their coming
  std::vector<Bundle> bundles_;
  std::vector<int> bundle_of_;  // by table
};

}  // namespace neuroshard
