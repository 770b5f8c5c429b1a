#include "server/search/feasibility/arrangement.h"

#include <cstddef>
#include <utility>

#include "common/base/positions.h"
#include "common/domain/memory_use.h"
#include "server/evaluate/lay_out.h"

namespace neuroshard {
namespace {

// Those that have a shard, ascending.
std::vector<int> RanksOf(const std::vector<Shard>& shards) {
  std::vector<int> ranks;
  for (const Shard& shard : shards) ranks.push_back(shard.rank);
  SortUnique(ranks);
  return ranks;
}

}  // namespace

std::int64_t ShardBytes(const PlanRequest& request, int table, const TableArrangement& laid,
                        const Shard& shard) {
  return ShardMemory(request, request.tables[static_cast<std::size_t>(table)], laid.layout(),
                     shard.rows, shard.cols)
      .total_bytes();
}

Arrangement::Arrangement(const PlanRequest& request, const CompiledRules& rules)
    : request_(request),
      ledger_(request, rules),
      laid_(request.tables.size()),
      tables_on_(request.topology.devices.size()) {}

bool Arrangement::Put(int table, TableArrangement laid) {
  if (ledger_.Put(table, laid.layout(), laid.shards) != PlacementLedger::Answer::kYes) {
    return false;
  }
  for (const int rank : RanksOf(laid.shards)) {
    tables_on_[static_cast<std::size_t>(rank)].push_back(table);
  }
  laid_[static_cast<std::size_t>(table)] = std::move(laid);
  return true;
}

TableArrangement Arrangement::Take(int table) {
  TableArrangement laid = std::exchange(laid_[static_cast<std::size_t>(table)], {});
  ledger_.Take(table, laid.layout(), laid.shards);
  for (const int rank : RanksOf(laid.shards)) {
    std::erase(tables_on_[static_cast<std::size_t>(rank)], table);
  }
  return laid;
}

std::int64_t Arrangement::BytesOn(int table, int rank) const {
  const TableArrangement& laid = of(table);
  std::int64_t bytes = 0;
  for (const Shard& shard : laid.shards) {
    if (shard.rank == rank) bytes += ShardBytes(request_, table, laid, shard);
  }
  return bytes;
}

Plan Arrangement::MakePlan() const {
  Plan plan = UnplacedTables(request_);
  for (std::size_t t = 0; t < laid_.size(); ++t) {
    TablePlan& entry = plan.tables[t];
    entry.sharding_type = laid_[t].type;
    entry.compute_kernel = laid_[t].layout().kernel;
    entry.shards = laid_[t].shards;
    entry.cache_load_factor = laid_[t].residency.cache_load_factor;
  }
  return plan;
}

}  // namespace neuroshard
