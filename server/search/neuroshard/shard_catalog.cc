#include "server/search/neuroshard/shard_catalog.h"

#include <cstddef>

#include "server/features/shard_features.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

ShardCatalog::ShardCatalog(SearchContext& context)
    : context_(context),
      conditions_(ConditionsOf(context.request())),
      width_(static_cast<std::size_t>(context.model().representation_width())),
      id_of_cols_(context.request().tables.size()) {}

int ShardCatalog::Intern(int table, std::int64_t cols) {
  const auto [entry, added] =
      id_of_cols_[static_cast<std::size_t>(table)].emplace(cols, static_cast<int>(entries_.size()));
  if (added) entries_.push_back({table, cols, PieceBytes(context_.request(), table, cols), 0});
  return entry->second;
}

void ShardCatalog::PredictNew() {
  const std::size_t added = entries_.size() - predicted_;
  if (added == 0) return;
  std::vector<ShardFeatures> features;
  features.reserve(added);
  for (std::size_t i = predicted_; i < entries_.size(); ++i) {
    const Table& table = context_.request().tables[static_cast<std::size_t>(entries_[i].table)];
    features.push_back(FeaturesOf(table, ShardLayout{}, table.num_embeddings, entries_[i].cols));
  }
  phi_.resize(entries_.size() * width_);
  const std::span<float> phi(phi_.data() + predicted_ * width_, added * width_);
  loads_.resize(entries_.size());
  context_.model().Represent(conditions_, features, phi, std::span(loads_).subspan(predicted_));
  std::vector<ComputeCost> costs(added);
  context_.model().ComputeCosts(phi, costs);
  context_.statistics().compute_evaluations += static_cast<std::int64_t>(added);
  for (std::size_t i = 0; i < added; ++i) {
    entries_[predicted_ + i].single_cost_ms = costs[i].total_ms;
  }
  predicted_ = entries_.size();
}

}  // namespace neuroshard
