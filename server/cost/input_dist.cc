#include "server/cost/input_dist.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

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

class ComputeWithInputDist final : public ComputeModel {
 public:
  ComputeWithInputDist(std::shared_ptr<const ComputeModel> compute, const InputDist& input_dist)
      : compute_(std::move(compute)), input_dist_(input_dist) {}

  int representation_width() const override { return compute_->representation_width() + 1; }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    const std::size_t width = Width();
    assert(phi.size() == shards.size() * (width + 1));
    std::vector<float> base(shards.size() * width);
    compute_->Represent(conditions, shards, base);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      float* const row = phi.data() + i * (width + 1);
      std::copy_n(base.data() + i * width, width, row);
      row[width] = input_dist_.Ms(shards[i]);
    }
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    const std::size_t width = Width();
    assert(sums.size() == out.size() * (width + 1));
    std::vector<float> base(out.size() * width);
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::copy_n(sums.data() + i * (width + 1), width, base.data() + i * width);
    }
    compute_->Costs(base, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i].total_ms += sums[i * (width + 1) + width];
    }
  }

  std::vector<ComputeInterval> Intervals(const PricingConditions& conditions,
                                         const ShardSets& ranks,
                                         std::span<const ComputeCost> costs) const override {
    return compute_->Intervals(conditions, ranks, costs);
  }

 private:
  std::size_t Width() const { return static_cast<std::size_t>(compute_->representation_width()); }

  const std::shared_ptr<const ComputeModel> compute_;
  const InputDist input_dist_;
};

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

std::optional<InputDist> InputDist::Of(const PricingConditions& conditions, InputDistRule rule,
                                       const std::optional<MeasuredInputDist>& measured,
                                       const std::optional<IntervalManifest>& interval) {
  if (!conditions.pipeline_type) return std::nullopt;
  InputDist input_dist(conditions, rule);
  if (measured) {
    const auto num_hosts = std::max<std::size_t>(1, conditions.hosts.size());
    input_dist.rates_ = measured->At(conditions.num_ranks, static_cast<int>(num_hosts));
    if (input_dist.rates_ && interval) {
      input_dist.interval_ = IntervalRule(*interval).AtRanks(conditions.num_ranks);
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
  if (rule_ == InputDistRule::kTorchRec) {
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

std::shared_ptr<const ComputeModel> WithInputDist(std::shared_ptr<const ComputeModel> compute,
                                                  const InputDist& input_dist) {
  return std::make_shared<const ComputeWithInputDist>(std::move(compute), input_dist);
}

}  // namespace neuroshard
