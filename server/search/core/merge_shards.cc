#include "server/search/core/merge_shards.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "server/cost/shard_features.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"

namespace neuroshard {
namespace {

constexpr double kNoModelTells = 0.005;
constexpr std::size_t kMaxTriedAlone = 64;

// Blocks of columns on any ranks, in the order in which ranks come first; nothing where every shard
// has a rank of its own.
std::optional<TablePlan> WithMergedShards(const TablePlan& table) {
  if (table.sharding_type != ShardingType::kColumnWise &&
      table.sharding_type != ShardingType::kTableColumnWise) {
    return std::nullopt;
  }
  TablePlan merged = table;
  merged.shards.clear();
  for (const Shard& shard : table.shards) {
    const auto same = std::ranges::find_if(
        merged.shards, [&](const Shard& other) { return other.rank == shard.rank; });
    if (same == merged.shards.end()) {
      merged.shards.push_back(shard);
    } else {
      same->cols += shard.cols;
    }
  }
  if (merged.shards.size() == table.shards.size()) return std::nullopt;
  std::int64_t offset = 0;
  for (Shard& shard : merged.shards) {
    shard.col_offset = offset;
    offset += shard.cols;
  }
  if (merged.shards.size() == 1) merged.sharding_type = ShardingType::kTableWise;
  return merged;
}

// Whether the model says how far it may err.
bool StatesItsError(const SearchContext& context) {
  const PlanRequest& request = context.request();
  const Table& table = request.tables.front();
  ShardSets ranks;
  ranks.shards = {FeaturesOf(table, {}, table.num_embeddings, table.embedding_dim)};
  ranks.sets.assign(static_cast<std::size_t>(context.model().num_ranks()), {0});
  std::vector<int> kinds(context.model().kind_of_rank().begin(),
                         context.model().kind_of_rank().end());
  const std::vector<ShardSetCost> costs = context.model().CostsOfSets(ranks, kinds);
  const std::vector<ComputeCost> compute = Mapped(costs, &ShardSetCost::compute);
  return !context.model().ComputeIntervals(ranks, compute, kinds).empty();
}

// Whether the plan is legal and costs no more than `max_ms`.
StatusOr<bool> IsLegalWithin(const SearchContext& context, const Plan& plan, double max_ms) {
  if (!CheckPlan(context.request(), plan).empty()) return false;
  NS_ASSIGN_OR_RETURN(const PlanCost cost, PricePlan(context.request(), plan, context.model()));
  return cost.embedding_cost_ms <= max_ms;
}

}  // namespace

double MaxEquivalentCostMs(const SearchContext& context) {
  const bool is_compared = context.request().memory.rule == MemoryRule::kWeightsOnly;
  return context.best_cost_ms() * (is_compared || !StatesItsError(context) ? 1 : 1 + kNoModelTells);
}

Status MergeShards(SearchContext& context) {
  if (!context.has_plan() || context.request().migration.has_value()) return absl::OkStatus();
  Plan plan = context.best_plan();
  std::vector<std::pair<std::size_t, TablePlan>> merged;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    // Unpooled ones have TorchRec's one width.
    if (context.request().tables[t].kind == TableKind::kEmbedding) continue;
    if (auto table = WithMergedShards(plan.tables[t])) merged.emplace_back(t, *std::move(table));
  }
  if (merged.empty() || context.ShouldStop()) return absl::OkStatus();
  const double max_ms = MaxEquivalentCostMs(context);
  Plan all = plan;
  for (const auto& [t, table] : merged) all.tables[t] = table;
  NS_ASSIGN_OR_RETURN(const bool all_fit, IsLegalWithin(context, all, max_ms));
  if (all_fit) return context.Improve(std::move(all));
  bool changed = false;
  for (std::size_t i = 0; i < std::min(merged.size(), kMaxTriedAlone); ++i) {
    if (context.ShouldStop()) break;
    auto& [t, table] = merged[i];
    std::swap(plan.tables[t], table);
    NS_ASSIGN_OR_RETURN(const bool fits, IsLegalWithin(context, plan, max_ms));
    if (!fits) std::swap(plan.tables[t], table);
    changed = changed || fits;
  }
  return changed ? context.Improve(std::move(plan)) : absl::OkStatus();
}

}  // namespace neuroshard
