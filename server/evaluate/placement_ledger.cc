#include "server/evaluate/placement_ledger.h"

#include "common/domain/memory_use.h"
#include "server/evaluate/lay_out.h"

namespace neuroshard {

PlacementLedger::PlacementLedger(const PlanRequest& request, const CompiledRules& rules)
    : request_(request),
      rules_(rules),
      placed_(request.tables.size()),
      state_(rules),
      pools_(request) {
  if (request.migration.has_value() && request.migration->budget_bytes.has_value()) {
    previous_.emplace(request);
    left_budget_bytes_ = *request.migration->budget_bytes;
  }
}

PlacementLedger::Amounts PlacementLedger::AmountsOf(int table, const ShardLayout& layout,
                                                    const Shard& shard) const {
  const Table& of = At(request_.tables, table);
  const MemoryUse use = ShardMemory(request_, of, layout, shard.rows, shard.cols);
  return {use.by_tier(),
          previous_.has_value() ? previous_->MovedBytes(table, layout.kernel, shard) : 0};
}

void PlacementLedger::Add(int table, const ShardLayout& layout, const Shard& shard,
                          const Amounts& amounts) {
  if (TraitsOf(layout.kernel).keeps_apart) apart_.emplace(table, shard.rank);
  pools_.Add(shard.rank, amounts.bytes);
  left_budget_bytes_ -= amounts.moved_bytes;
  state_.Add(table, shard.rank);
  PlacedTable& placed = At(placed_, table);
  placed.layout = layout;
  placed.shards.push_back(shard);
}

PlacementLedger::Answer PlacementLedger::PutOne(int table, const ShardLayout& layout,
                                                const Shard& shard) {
  if (!state_.Allows(table, shard.rank)) return Answer::kAgainstRules;
  if (TraitsOf(layout.kernel).keeps_apart && apart_.contains({table, shard.rank})) {
    return Answer::kAgainstRules;
  }
  if (SpreadOf(layout.type) == Spread::kOneHost &&
      At(rules_.hosts(), rules_.host_of(shard.rank)).count != layout.row_shards) {
    return Answer::kAgainstRules;
  }
  const Amounts amounts = AmountsOf(table, layout, shard);
  for (const auto& [tier, name] : kWords<MemoryTier>) {
    if (pools_.FitsIn(tier, shard.rank, amounts.bytes)) continue;
    full_tier_ = tier;
    return Answer::kNoRoom;
  }
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
    pools_.Add(shards[s].rank, amounts.bytes, -1);
    if (TraitsOf(layout.kernel).keeps_apart) apart_.erase({table, shards[s].rank});
    left_budget_bytes_ += amounts.moved_bytes;
    state_.Remove(table, shards[s].rank);
    At(placed_, table).shards.pop_back();
  }
}

PlacedTable PlacementLedger::Take(int table) {
  PlacedTable taken = of(table);
  Take(table, taken.layout, taken.shards);
  return taken;
}

Plan PlacementLedger::MakePlan() const {
  Plan plan = UnplacedTables(request_);
  for (std::size_t t = 0; t < placed_.size(); ++t) {
    const auto& [layout, shards] = placed_[t];
    plan.tables[t].sharding_type = layout.type;
    plan.tables[t].compute_kernel = layout.kernel;
    plan.tables[t].cache_load_factor = layout.cache_load_factor;
    plan.tables[t].shards = shards;
  }
  return plan;
}

}  // namespace neuroshard
