#include "server/evaluate/shard_price.h"

#include <cstddef>

namespace neuroshard {

std::span<const double> ShardPricer::Price(std::span<const ShardFeatures> shards) {
  const std::size_t count = shards.size();
  phi_.resize(count * static_cast<std::size_t>(model_.representation_width()));
  loads_.resize(count);
  compute_.resize(count);
  prices_.resize(count);
  if (count == 0) return prices_;
  model_.Represent(shards, phi_, loads_);
  kinds_.assign(count, 0);
  model_.ComputeCosts(phi_, compute_, kinds_);

  const std::size_t ranks = static_cast<std::size_t>(model_.num_ranks());
  const std::size_t cells = (count + ranks - 1) / ranks * ranks;
  cells_.assign(cells, 0.0F);
  comm_ms_.resize(cells);
  start_offsets_ms_.assign(cells, 0.0F);
  for (std::size_t i = 0; i < count; ++i) cells_[i] = loads_[i].backward;
  model_.comm().BackwardCosts(cells_, comm_ms_);
  for (std::size_t i = 0; i < count; ++i) {
    prices_[i] = static_cast<double>(compute_[i].total_ms) + comm_ms_[i];
    cells_[i] = loads_[i].forward;
  }
  model_.comm().ForwardCosts(cells_, start_offsets_ms_, comm_ms_);
  for (std::size_t i = 0; i < count; ++i) prices_[i] += comm_ms_[i];
  return prices_;
}

}  // namespace neuroshard
