#include "common/domain/table.h"

#include <algorithm>

namespace neuroshard {

double PooledVectors(const Table& table) {
  if (table.pooling_factors.empty()) {
    const double num_features = std::max(1.0, static_cast<double>(table.features.size()));
    return std::min(num_features, table.pooling_factor);
  }
  double vectors = 0;
  for (const double pooling_factor : table.pooling_factors) {
    vectors += std::min(1.0, pooling_factor);
  }
  return vectors;
}

}  // namespace neuroshard
