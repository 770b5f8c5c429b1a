#include "server/evaluate/shard_shapes.h"

#include "server/cost/shard_features.h"

namespace neuroshard {

std::size_t ShardShapes::Note(int table, const Table& of, const ShardLayout& layout,
                              std::int64_t rows, std::int64_t cols) {
  const auto [at, is_new] =
      number_of_.emplace(Shape(table, layout.type, layout.kernel, layout.row_shards,
                               layout.cache_load_factor, rows, cols),
                         features_.size());
  if (is_new) features_.push_back(FeaturesOf(of, layout, rows, cols));
  return at->second;
}

void ShardShapes::Represent(const BoundCostModel& model) {
  width_ = static_cast<std::size_t>(model.representation_width());
  phi_.resize(features_.size() * width_);
  loads_.resize(features_.size());
  if (!features_.empty()) model.Represent(features_, phi_, loads_);
}

}  // namespace neuroshard
