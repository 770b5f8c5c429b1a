#include "common/domain/table.h"

#include <algorithm>
#include <cstddef>

namespace neuroshard {

VectorCount VectorsOf(const Table& table) {
  if (table.kind == TableKind::kEmbedding) return {table.pooling_factor, 0};
  if (table.pooling_factors.empty()) {
    const double num_features = std::max(1.0, static_cast<double>(table.features.size()));
    return {std::min(num_features, table.pooling_factor), 0};
  }
  VectorCount count = {0, 0};
  for (std::size_t i = 0; i < table.pooling_factors.size(); ++i) {
    const double bags = table.num_poolings.empty() ? 1 : table.num_poolings[i];
    const double vectors = std::min(1.0, table.pooling_factors[i]) * bags;
    if (table.feature_batch_sizes.empty()) {
      count.of_sample += vectors;
    } else {
      count.of_batch += vectors * static_cast<double>(table.feature_batch_sizes[i]);
    }
  }
  return count;
}

VectorCount CountBags(const Table& table) {
  const std::size_t num_features =
      std::max(table.num_poolings.size(), table.feature_batch_sizes.size());
  if (num_features == 0) return {};
  VectorCount count = {0, 0};
  for (std::size_t i = 0; i < num_features; ++i) {
    const double bags = table.num_poolings.empty() ? 1 : table.num_poolings[i];
    if (table.feature_batch_sizes.empty()) {
      count.of_sample += bags;
    } else {
      count.of_batch += bags * static_cast<double>(table.feature_batch_sizes[i]);
    }
  }
  return count;
}

}  // namespace neuroshard
