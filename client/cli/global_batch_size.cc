#include "client/cli/global_batch_size.h"

#include <algorithm>
#include <cmath>

#include "common/codec/field_limits.h"
#include "common/domain/plan_request.h"

namespace neuroshard {
namespace {

// Of a global batch, by the features that state pooling factors and batch sizes.
double IdsOf(const v1::Table& table) {
  const int features = std::min(table.pooling_factors_size(), table.feature_batch_sizes_size());
  double ids = 0;
  for (int i = 0; i < features; ++i) {
    const double bags = i < table.num_poolings_size() ? table.num_poolings(i) : 1;
    ids += table.pooling_factors(i) * bags * static_cast<double>(table.feature_batch_sizes(i));
  }
  return ids;
}

void ScaleFeatureBatches(double ratio, v1::Table& table) {
  const double ids_before = IdsOf(table);
  for (std::int64_t& size : *table.mutable_feature_batch_sizes()) {
    if (size < 1 || size > kMaxBatch) continue;
    const double scaled = static_cast<double>(size) * ratio;
    size = std::max<std::int64_t>(1, std::llround(std::min(scaled, 0x1.0p62)));
  }
  if (!table.has_pooling_factor() || !(ids_before > 0)) return;
  // Rounding changed the mean ids of a sample.
  table.set_pooling_factor(table.pooling_factor() * (IdsOf(table) / ids_before) / ratio);
}

}  // namespace

std::int64_t GlobalBatchSizeOf(const v1::ShardPlanRequest& request) {
  return request.has_global_batch_size() ? request.global_batch_size()
                                         : PlanRequest().global_batch_size;
}

void SetGlobalBatchSize(std::int64_t batch_size, v1::ShardPlanRequest& request) {
  const std::int64_t before = GlobalBatchSizeOf(request);
  request.set_global_batch_size(batch_size);
  if (before < 1 || batch_size < 1 || before == batch_size) return;
  const double ratio = static_cast<double>(batch_size) / static_cast<double>(before);
  for (v1::Table& table : *request.mutable_tables()) {
    if (table.feature_batch_sizes_size() > 0) ScaleFeatureBatches(ratio, table);
  }
}

}  // namespace neuroshard
