#include "server/cost/input_dist.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace neuroshard {
namespace {

constexpr double kIdBytes = 8;
constexpr double kLengthBytes = 8;
constexpr double kWeightBytes = 4;
// Times that memory sees the bytes of a shard. Before the exchange, features are put in the order
// of ranks (read, written), or bucketized by row block (read twice, to count and to move, and
// written); after it, batches of ranks are put in the order of features (read, written).
constexpr double kPassesOfWholeRows = 4;
constexpr double kPassesOfCutRows = 5;

}  // namespace

InputBytes InputBytesOf(const ShardFeatures& shard, const PricingConditions& conditions) {
  if (shard.layout.type == ShardingType::kDataParallel) return {};
  const double batch = static_cast<double>(conditions.global_batch_size);
  const double rank_share = 1.0 / conditions.num_ranks;
  const double row_share = CutsRows(shard.layout.type) ? static_cast<double>(shard.rows) /
                                                             static_cast<double>(shard.table_rows)
                                                       : 1;
  const double ids = shard.pooling_factor * batch * rank_share * row_share;
  const double bags = shard.states_bags ? shard.bags.Of(batch) : shard.num_features * batch;
  return {ids * kIdBytes, bags * rank_share * kLengthBytes,
          shard.weighted ? ids * kWeightBytes : 0};
}

InputDistBytes InputDistBytesOf(const ShardFeatures& shard, const PricingConditions& conditions) {
  const InputBytes from_each = InputBytesOf(shard, conditions);
  const double ids = (from_each.ids + from_each.weights) * conditions.num_ranks;
  const bool cut = CutsRows(shard.layout.type);
  return {cut ? 0 : ids, cut ? ids : 0, from_each.lengths * conditions.num_ranks};
}

std::optional<InputDist> InputDist::Of(const PricingConditions& conditions,
                                       const ModelProperties& model) {
  if (!conditions.pipeline_type) return std::nullopt;
  InputDist input_dist(conditions, model.torchrec_input_dist);
  if (model.measured_input_dist) {
    const auto num_hosts = std::max<std::size_t>(1, conditions.hosts.size());
    input_dist.rates_ =
        model.measured_input_dist->At(conditions.num_ranks, static_cast<int>(num_hosts));
    if (input_dist.rates_ && model.input_dist_interval) {
      input_dist.interval_ = IntervalRule(*model.input_dist_interval).AtRanks(conditions.num_ranks);
    }
  }
  return input_dist;
}

float InputDist::fixed_ms() const {
  return rates_ && conditions_.num_ranks > 1 ? static_cast<float>(rates_->fixed_ms) : 0;
}

std::optional<CostInterval> InputDist::Interval(double rank_ms) const {
  if (!interval_) return std::nullopt;
  return interval_->Around(rank_ms, interval_->Noise(rank_ms));
}

float InputDist::Ms(const ShardFeatures& given) const {
  const ShardFeatures shard = AsHottestRowBlock(given, conditions_.global_batch_size);
  const double ranks = topology_.num_ranks;
  const double per_host = topology_.ranks_per_host;
  if (ranks == 1 || shard.layout.type == ShardingType::kDataParallel) return 0;
  if (rates_) return static_cast<float>(scale_ * rates_->Ms(InputDistBytesOf(shard, conditions_)));
  const double link = CommBandwidth(topology_, Collective::kAllToAll, ranks, per_host);
  if (is_torchrec_) {
    const double ids = shard.pooling_factor * static_cast<double>(conditions_.global_batch_size);
    return static_cast<float>(std::ceil(ids * kIdBytes) / link);
  }
  const double from_each = InputBytesOf(shard, conditions_).total();
  const double per_pod = std::min(ranks, per_host * conditions_.pod_size);
  const double host_link = CommBandwidth(topology_, Collective::kAllToAll, per_host, per_host);
  const double exchange_ms =
      std::max((per_pod - 1) * from_each / host_link, (ranks - per_pod) * from_each / link);
  const double passes = CutsRows(shard.layout.type) ? kPassesOfCutRows : kPassesOfWholeRows;
  return static_cast<float>(scale_ *
                            (exchange_ms + passes * from_each * ranks / memory_bytes_per_ms_));
}

}  // namespace neuroshard
