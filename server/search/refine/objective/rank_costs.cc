#include "server/search/refine/objective/rank_costs.h"

#include <cstddef>
#include <span>

namespace neuroshard {
namespace {

constexpr std::size_t kMaxContents = 1U << 20;

}  // namespace

RankCosts::RankCosts(SearchContext& context, const ShardTable& shard_table,
                     const Solution& solution)
    : shard_table_(shard_table),
      solution_(solution),
      model_(context.model()),
      additive_(context.model().properties().additive_compute),
      cache_(context, shard_table.width(), kMaxContents) {}

template <typename Fill>
RankCosts::Slot RankCosts::FindOrQueue(int rank, const Solution::Rank& changed, const Fill& fill) {
  if (changed.shards == 0) return RankCostCache::kEmptyRank;
  if (additive_) return cache_.AddKnown(static_cast<float>(changed.shard_costs_ms));
  return cache_.Find(changed.content, model_.kind(static_cast<std::size_t>(rank)), fill);
}

RankCosts::Slot RankCosts::Find(int rank, int without, int with) {
  Solution::Rank changed = solution_.rank(rank);
  if (without >= 0) changed.Count(shard_table_, rank, without, -1);
  if (with >= 0) changed.Count(shard_table_, rank, with, 1);
  return FindOrQueue(rank, changed, [&](std::span<float> row) {
    const double* const sum = solution_.sum(rank);
    const float* const less = without >= 0 ? shard_table_.phi(without) : nullptr;
    const float* const more = with >= 0 ? shard_table_.phi(with) : nullptr;
    for (std::size_t w = 0; w < row.size(); ++w) {
      double value = sum[w];
      if (less != nullptr) value -= static_cast<double>(less[w]);
      if (more != nullptr) value += static_cast<double>(more[w]);
      row[w] = static_cast<float>(value);
    }
  });
}

RankCosts::Slot RankCosts::Find(int rank, const Solution::Rank& changed, const double* added) {
  return FindOrQueue(rank, changed, [&](std::span<float> row) {
    const double* const sum = solution_.sum(rank);
    for (std::size_t w = 0; w < row.size(); ++w) row[w] = static_cast<float>(sum[w] + added[w]);
  });
}

void RankCosts::TrimIfLarge() {
  if (additive_) {
    cache_.Clear();
  } else {
    cache_.TrimIfLarge();
  }
}

}  // namespace neuroshard
