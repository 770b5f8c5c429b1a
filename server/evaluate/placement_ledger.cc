#include "server/evaluate/placement_ledger.h"

#include <cstddef>

#include "common/domain/memory_use.h"

namespace neuroshard {

PlacementLedger::PlacementLedger(const PlanRequest& request, const CompiledRules& rules)
    : request_(request), rules_(rules), state_(rules), host_memory_(request.topology) {
  for (const Device& device : request.topology.devices) {
    left_bytes_.push_back(device.memory_bytes - ReserveBytes(request.memory, device.memory_bytes));
  }
  if (request.migration.has_value() && request.migration->budget_bytes.has_value()) {
    previous_.emplace(request);
    left_budget_bytes_ = *request.migration->budget_bytes;
  }
}

PlacementLedger::Amounts PlacementLedger::AmountsOf(int table, const ShardLayout& layout,
                                                    const Shard& shard) const {
  const Table& of = request_.tables[static_cast<std::size_t>(table)];
  const MemoryUse use = ShardMemory(request_, of, layout, shard.rows, shard.cols);
  return {use.total_bytes(), HostBytesOf(use),
          previous_.has_value() ? previous_->MovedBytes(table, layout.kernel, shard) : 0};
}

void PlacementLedger::Add(int table, const ShardLayout& layout, const Shard& shard,
                          const Amounts& amounts) {
  if (TierOf(layout.kernel) == MemoryTier::kSsd) on_ssd_.emplace(table, shard.rank);
  left_bytes_[static_cast<std::size_t>(shard.rank)] -= amounts.bytes;
  host_memory_.Add(shard.rank, amounts.host_bytes);
  left_budget_bytes_ -= amounts.moved_bytes;
  state_.Add(table, shard.rank);
}

PlacementLedger::Answer PlacementLedger::PutOne(int table, const ShardLayout& layout,
                                                const Shard& shard) {
  if (!state_.Allows(table, shard.rank)) return Answer::kAgainstRules;
  if (TierOf(layout.kernel) == MemoryTier::kSsd && on_ssd_.contains({table, shard.rank})) {
    return Answer::kAgainstRules;
  }
  const bool by_host =
      layout.type == ShardingType::kTableRowWise || layout.type == ShardingType::kGridShard;
  if (by_host && rules_.hosts()[static_cast<std::size_t>(rules_.host_of(shard.rank))].count !=
                     layout.row_shards) {
    return Answer::kAgainstRules;
  }
  const Amounts amounts = AmountsOf(table, layout, shard);
  // A shard that takes nothing may be on a rank whose reserve alone is too much.
  if (amounts.bytes > 0 && amounts.bytes > left_bytes_[static_cast<std::size_t>(shard.rank)]) {
    return Answer::kNoMemory;
  }
  if (!host_memory_.Fits(shard.rank, {amounts.host_bytes.memory, 0})) return Answer::kNoHostMemory;
  if (!host_memory_.Fits(shard.rank, {0, amounts.host_bytes.ssd})) return Answer::kNoSsd;
  if (amounts.moved_bytes > left_budget_bytes_ && amounts.moved_bytes > 0) {
    return Answer::kOverBudget;
  }
  Add(table, layout, shard, amounts);
  return Answer::kYes;
}

PlacementLedger::Answer PlacementLedger::Put(int table, const ShardLayout& layout,
                                             std::span<const Shard> shards) {
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const Answer answer = PutOne(table, layout, shards[s]);
    if (answer == Answer::kYes) continue;
    Take(table, layout, shards.first(s));
    return answer;
  }
  return Answer::kYes;
}

void PlacementLedger::PutAnyway(int table, const ShardLayout& layout,
                                std::span<const Shard> shards) {
  for (const Shard& shard : shards) Add(table, layout, shard, AmountsOf(table, layout, shard));
}

void PlacementLedger::Take(int table, const ShardLayout& layout, std::span<const Shard> shards) {
  for (std::size_t s = shards.size(); s-- > 0;) {
    const Amounts amounts = AmountsOf(table, layout, shards[s]);
    left_bytes_[static_cast<std::size_t>(shards[s].rank)] += amounts.bytes;
    host_memory_.Add(shards[s].rank, amounts.host_bytes, -1);
    if (TierOf(layout.kernel) == MemoryTier::kSsd) on_ssd_.erase({table, shards[s].rank});
    left_budget_bytes_ += amounts.moved_bytes;
    state_.Remove(table, shards[s].rank);
  }
}

}  // namespace neuroshard
