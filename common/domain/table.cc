#include "common/domain/table.h"

#include <algorithm>
#include <cstddef>

namespace neuroshard {
namespace {

// The sum over bags of the table's features, a bag of the i-th of which counts as of_bag(i).
template <typename OfBag>
VectorCount SumOfBags(const Table& table, std::size_t num_features, const OfBag& of_bag) {
  VectorCount count = {0, 0};
  for (std::size_t i = 0; i < num_features; ++i) {
    const double bags = table.num_poolings.empty() ? 1 : table.num_poolings[i];
    if (table.feature_batch_sizes.empty()) {
      count.of_sample += of_bag(i) * bags;
    } else {
      count.of_batch += of_bag(i) * bags * static_cast<double>(table.feature_batch_sizes[i]);
    }
  }
  return count;
}

}  // namespace

VectorCount VectorsOf(const Table& table) {
  if (table.kind == TableKind::kEmbedding) return {table.pooling_factor, 0};
  if (table.pooling_factors.empty()) {
    const double num_features = std::max(1.0, static_cast<double>(table.features.size()));
    return {std::min(num_features, table.pooling_factor), 0};
  }
  return SumOfBags(table, table.pooling_factors.size(), [&](std::size_t feature) {
    return std::min(1.0, table.pooling_factors[feature]);
  });
}

VectorCount CountBags(const Table& table) {
  const std::size_t num_features =
      std::max(table.num_poolings.size(), table.feature_batch_sizes.size());
  if (num_features == 0) return {};
  return SumOfBags(table, num_features, [](std::size_t) { return 1.0; });
}

}  // namespace neuroshard
