#include "server/evaluate/placement_batch.h"

namespace neuroshard {

void PlacementBatch::Begin(std::span<const float> compute_ms, std::span<const CommLoad> loads) {
  begin_ = compute_ms_.size();
  row_of_rank_.clear();
  compute_ms_.insert(compute_ms_.end(), compute_ms.begin(), compute_ms.end());
  ShardKinds& kinds = kinds_.emplace_back();
  for (const CommLoad& load : loads) {
    forward_.push_back(load.forward);
    backward_.push_back(load.backward);
    kinds |= load.kinds;
  }
}

void PlacementBatch::Add(int rank, std::span<const float> held, std::span<const float> phi,
                         const CommLoad& load) {
  const auto [at, is_new] = row_of_rank_.emplace(rank, cells_.size());
  const std::size_t cell = begin_ + static_cast<std::size_t>(rank);
  if (is_new) {
    cells_.push_back(cell);
    sums_.insert(sums_.end(), held.begin(), held.end());
  }
  float* sum = sums_.data() + at->second * phi.size();
  for (std::size_t w = 0; w < phi.size(); ++w) sum[w] += phi[w];
  forward_[cell] += load.forward;
  backward_[cell] += load.backward;
  kinds_.back() |= load.kinds;
}

void PlacementBatch::Price(PlacementPrices& prices) {
  std::vector<ComputeCost> costs(cells_.size());
  const std::size_t ranks = static_cast<std::size_t>(model_.num_ranks());
  std::vector<int> kinds;
  for (const std::size_t cell : cells_) kinds.push_back(model_.kind(cell % ranks));
  if (!cells_.empty()) model_.ComputeCosts(sums_, costs, kinds);
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const float scale = model_.compute_scale(cells_[i] % ranks);
    compute_ms_[cells_[i]] = costs[i].total_ms * scale;
  }
  PricePlacements(model_, compute_ms_, forward_, backward_, prices, kinds_);
}

}  // namespace neuroshard
