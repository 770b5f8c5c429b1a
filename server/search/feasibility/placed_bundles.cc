#include "server/search/feasibility/placed_bundles.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "common/domain/memory_use.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

// Those that have a shard, ascending.
std::vector<int> RanksOf(const std::vector<Shard>& shards) {
  std::vector<int> ranks = Mapped<int>(shards, &Shard::rank);
  SortUnique(ranks);
  return ranks;
}

}  // namespace

PlacedBundles::PlacedBundles(const PlanRequest& request, const CompiledRules& rules)
    : request_(request),
      rules_(rules),
      places_(request, rules),
      ledger_(request, rules),
      tables_on_(request.topology.devices.size()),
      bundle_of_(request.tables.size()) {
  for (int table = 0; table < static_cast<int>(request.tables.size()); ++table) {
    const int group = rules.of(table).rank_group;
    if (group < 0) {
      bundles_.push_back({{table}, {}});
    } else if (At(rules.rank_groups(), group).front() == table) {
      bundles_.push_back({At(rules.rank_groups(), group), {}});
    }
  }
  const std::vector<std::int64_t> bytes_of = WholeBytes(request);
  std::ranges::stable_sort(bundles_, std::greater{}, [&](const Bundle& bundle) {
    double bytes = 0;
    for (const int table : bundle.tables) bytes += static_cast<double>(At(bytes_of, table));
    return bytes;
  });
  for (int b = 0; b < size(); ++b) {
    auto& [tables, on_rank, on_rank_bytes] = At(bundles_, b);
    for (const int table : tables) {
      At(bundle_of_, table) = b;
      if (!ranks_of(b).empty()) on_rank.push_back(places_.OnRank(table, ranks_of(b).front()));
    }
    if (!std::ranges::all_of(on_rank, &PlacedTable::placed)) on_rank.clear();
    for (std::size_t i = 0; i < on_rank.size(); ++i) {
      for (const Shard& shard : on_rank[i].shards) {
        on_rank_bytes += ShardBytes(tables[i], on_rank[i], shard);
      }
    }
  }
}

std::vector<int> PlacedBundles::Waiting() const {
  std::vector<int> waiting = Positions<int>(bundles_.size());
  std::erase_if(waiting, [&](int bundle) { return placed(bundle); });
  return waiting;
}

bool PlacedBundles::Put(int bundle, const BundlePlacement& placement) {
  const std::vector<int>& tables = tables_of(bundle);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto& [layout, shards] = placement[i];
    if (ledger_.Put(tables[i], layout, shards) == PlacementLedger::Answer::kYes) {
      for (const int rank : RanksOf(shards)) At(tables_on_, rank).push_back(tables[i]);
      continue;
    }
    while (i-- > 0) TakeTable(tables[i]);
    return false;
  }
  return true;
}

PlacedTable PlacedBundles::TakeTable(int table) {
  PlacedTable placed_table = ledger_.Take(table);
  for (const int rank : RanksOf(placed_table.shards)) std::erase(At(tables_on_, rank), table);
  return placed_table;
}

BundlePlacement PlacedBundles::Take(int bundle) {
  return Mapped(tables_of(bundle), [this](int table) { return TakeTable(table); });
}

BundlePlacement PlacedBundles::OnRank(int bundle, int rank) const {
  BundlePlacement placement = At(bundles_, bundle).on_rank;
  for (PlacedTable& placed_table : placement) {
    for (Shard& shard : placed_table.shards) shard.rank = rank;
  }
  return placement;
}

std::vector<int> PlacedBundles::BundlesOn(int rank) const {
  std::vector<int> bundles;
  for (const int table : At(tables_on_, rank)) {
    const int bundle = bundle_of(table);
    if (std::ranges::find(bundles, bundle) == bundles.end()) bundles.push_back(bundle);
  }
  return bundles;
}

std::int64_t PlacedBundles::BytesOn(int bundle, int rank) const {
  const std::vector<int>& tables = tables_of(bundle);
  const bool in_one_shard_each =
      std::ranges::all_of(tables, [&](int table) { return ledger_.of(table).shards.size() == 1; });
  if (in_one_shard_each) return BytesOnOneRank(bundle);
  std::int64_t bytes = 0;
  for (const int table : tables) {
    const PlacedTable& placed_table = ledger_.of(table);
    for (const Shard& shard : placed_table.shards) {
      if (shard.rank == rank) bytes += ShardBytes(table, placed_table, shard);
    }
  }
  return bytes;
}

std::int64_t PlacedBundles::ShardBytes(int table, const PlacedTable& placed_table,
                                       const Shard& shard) const {
  return ShardMemory(request_, At(request_.tables, table), placed_table.layout, shard.rows,
                     shard.cols)
      .total_bytes();
}

}  // namespace neuroshard
