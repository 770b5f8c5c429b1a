#include "server/cost/compute_features.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "common/domain/expected_lookups.h"
#include "server/cost/feature_names.h"
#include "server/cost/volume_equivalent.h"

namespace neuroshard {
namespace {

constexpr std::size_t kBins = std::tuple_size_v<ReuseHistogram>;

constexpr auto kComputeNames = NamesOf(
    "bin_0", "bin_1", "bin_2", "bin_3", "bin_4", "bin_5", "bin_6", "bin_7", "bin_8", "bin_9",
    "bin_10", "bin_11", "bin_12", "bin_13", "bin_14", "bin_15", "bin_16", "log_dim",
    "log_pooling_factor", "log_rows", "log_batch", "log_lookups", "log_unique_rows",
    "log_lookup_bytes", "log_unique_bytes", "log_output_bytes", "log_weight_bytes", "cache_share",
    "element_bytes", "weighted", "mean_pooling", "optimizer_sgd", "optimizer_adagrad",
    "optimizer_rowwise_adagrad", "optimizer_adam", "optimizer_partial_rowwise_adam",
    "optimizer_lamb", "optimizer_lars_sgd", "unpooled", "fused_uvm", "fused_uvm_caching",
    "log_missed_rows", "log_missed_bytes", "log_missed_pages");

constexpr double kOutputElementBytes = 4;  // pooled vectors are fp32

double MissedRows(const PricingConditions& conditions, const ShardFeatures& shard) {
  const bool caches = shard.layout.kernel == ComputeKernel::kFusedUvmCaching;
  if (!caches && shard.layout.kernel != ComputeKernel::kFusedUvm) return 0;
  const double missed =
      ExpectedCacheHits(shard.reuse_histogram, shard.table_rows,
                        shard.pooling_factor * static_cast<double>(conditions.global_batch_size),
                        caches ? shard.layout.cache_load_factor : 0)
          .missed_rows();
  return missed * static_cast<double>(shard.rows) / static_cast<double>(shard.table_rows);
}

// The pages of a table with one of its missed rows, which lie anywhere: a page is left out when all
// of its rows are.
double MissedPages(double missed_rows, double rows, double row_bytes) {
  constexpr double kPageBytes = 65536;
  if (missed_rows <= 0 || rows <= 0) return 0;
  const double pages = std::max(1.0, rows * row_bytes / kPageBytes);
  const double missed_share = std::min(1.0, missed_rows / rows);
  if (row_bytes >= kPageBytes) return missed_share * pages;
  return pages * (1 - std::pow(1 - missed_share, rows / pages));
}

}  // namespace

std::span<const std::string_view> ComputeFeatureNames() { return kComputeNames; }

std::optional<std::size_t> ComputeFeatureIndex(std::string_view name) {
  const auto found = std::ranges::find(kComputeNames, name);
  if (found == kComputeNames.end()) return std::nullopt;
  return static_cast<std::size_t>(found - kComputeNames.begin());
}

double MeanIdCount(const ReuseHistogram& histogram) {
  double shares = 0;
  double count = 0;
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    shares += histogram[bin];
    const double middle =
        bin < 2 ? static_cast<double>(bin + 1) : 0.75 * static_cast<double>(std::size_t{1} << bin);
    count += histogram[bin] * middle;
  }
  return shares > 0 ? count : 1;
}

void ComputeFeaturesOf(const PricingConditions& conditions, const ShardFeatures& shard,
                       double cache_bytes, std::span<double> out) {
  assert(out.size() == kComputeNames.size());
  const bool is_replica = shard.layout.type == ShardingType::kDataParallel;
  const double batch =
      static_cast<double>(conditions.global_batch_size) / (is_replica ? conditions.num_ranks : 1);
  const double rows = static_cast<double>(shard.rows);
  const double cols = static_cast<double>(shard.cols);
  const double pooling = is_replica ? shard.pooling_factor : ShardPoolingFactor(conditions, shard);
  const double element_bytes = ElementBytes(shard.weight_dtype);
  const double lookups = batch * pooling;
  const bool unpooled = shard.pooling_mode == PoolingMode::kNone;
  const double unique_rows = std::min(rows, lookups / MeanIdCount(shard.reuse_histogram));
  const double unique_bytes = unique_rows * cols * element_bytes;
  const double cache_share =
      cache_bytes > 0 ? std::min(1.0, cache_bytes / std::max(1.0, unique_bytes)) : 1.0;

  auto next = std::copy(shard.reuse_histogram.begin(), shard.reuse_histogram.end(), out.begin());
  for (const double value :
       {cols, pooling, rows, batch, lookups, unique_rows, lookups * cols * element_bytes,
        unique_bytes, kOutputElementBytes * (unpooled ? lookups : batch) * cols,
        rows * cols * element_bytes}) {
    *next++ = std::log1p(value);
  }
  *next++ = cache_share;
  *next++ = element_bytes;
  *next++ = shard.weighted ? 1 : 0;
  *next++ = shard.pooling_mode == PoolingMode::kMean ? 1 : 0;
  for (const Optimizer optimizer :
       {Optimizer::kSgd, Optimizer::kAdagrad, Optimizer::kRowwiseAdagrad, Optimizer::kAdam,
        Optimizer::kPartialRowwiseAdam, Optimizer::kLamb, Optimizer::kLarsSgd}) {
    *next++ = conditions.optimizer == optimizer ? 1 : 0;
  }
  *next++ = unpooled ? 1 : 0;
  const double missed_rows = MissedRows(conditions, shard);
  *next++ = shard.layout.kernel == ComputeKernel::kFusedUvm ? 1 : 0;
  *next++ = shard.layout.kernel == ComputeKernel::kFusedUvmCaching ? 1 : 0;
  *next++ = std::log1p(missed_rows);
  *next++ = std::log1p(missed_rows * cols * element_bytes);
  *next++ = std::log1p(MissedPages(missed_rows, rows, cols * element_bytes));
  assert(next == out.end());
}

PricingConditions ConditionsOf(const ComputeSample& sample) {
  PricingConditions conditions;  // one rank on a host of its own
  conditions.global_batch_size = sample.batch_size;
  conditions.optimizer = sample.optimizer;
  return conditions;
}

}  // namespace neuroshard
