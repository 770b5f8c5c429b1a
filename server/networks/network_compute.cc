#include "server/networks/network_compute.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>

#include "common/base/positions.h"
#include "server/cost/compute_features.h"
#include "server/cost/feature_columns.h"
#include "server/cost/volume_equivalent.h"
#include "server/networks/network_tensors.h"

namespace neuroshard {
namespace {

constexpr double kMinExponent = -20;
constexpr double kMaxExponent = 10;

// NaN is the largest: what overflows is no reason to pick a shard.
float BoundedExp(double x) {
  const double bounded = x < kMinExponent ? kMinExponent : (x < kMaxExponent ? x : kMaxExponent);
  return static_cast<float>(std::exp(bounded));
}

// The head of a member whose tensors have this prefix; that of a universal network as two layers.
MlpNetwork HeadOf(const NetworkManifest& network, const TensorFile& file,
                  const std::string& prefix) {
  if (network.kind == NetworkKind::kTableSum) {
    return MlpNetwork(file, "head", network.head_layers, DenseActivation::kNone);
  }
  const auto values = [&](const char* name) -> const std::vector<float>& {
    return file.tensors.at(prefix + name).values;
  };
  const auto width = static_cast<std::size_t>(network.layers.back());
  const auto hidden = static_cast<std::size_t>(network.head_width());
  const std::size_t outputs = network.outputs.size();
  const std::size_t inner = hidden + width;
  Tensor first{{}, values("hidden.weight")};
  first.values.resize(inner * width, 0.0F);
  for (std::size_t k = 0; k < width; ++k) first.values[(hidden + k) * width + k] = 1;
  Tensor first_bias{{}, values("hidden.bias")};
  first_bias.values.resize(inner, 0.0F);
  Tensor second;
  for (std::size_t o = 0; o < outputs; ++o) {
    const auto append = [&](const std::vector<float>& from, std::size_t columns) {
      const auto row = from.begin() + static_cast<std::ptrdiff_t>(o * columns);
      second.values.insert(second.values.end(), row, row + static_cast<std::ptrdiff_t>(columns));
    };
    append(values("output.weight"), hidden);
    append(values("linear.weight"), width);
  }
  TensorFile head;
  head.tensors["head.0.weight"] = std::move(first);
  head.tensors["head.0.bias"] = std::move(first_bias);
  head.tensors["head.1.weight"] = std::move(second);
  head.tensors["head.1.bias"] = Tensor{{}, values("linear.bias")};
  return MlpNetwork(head, "head",
                    {static_cast<std::int64_t>(width), static_cast<std::int64_t>(inner),
                     static_cast<std::int64_t>(outputs)},
                    DenseActivation::kNone);
}

}  // namespace

float FiniteCost(double value) {
  const float rounded = static_cast<float>(value);
  if (!std::isfinite(rounded) && !(rounded < 0)) return std::numeric_limits<float>::max();
  return std::max(rounded, 0.0F);
}

NetworkCompute::NetworkCompute(const NetworkManifest& network, const TensorFile& file)
    : normalisation_(file),
      exponential_(network.kind == NetworkKind::kUniversalTableSum),
      width_(static_cast<std::size_t>(network.layers.back())),
      num_outputs_(network.outputs.size()),
      num_pricing_(static_cast<std::size_t>(network.pricing_members())) {
  if (exponential_) {
    row_width_ = ComputeFeatureNames().size();
    fill_row_ = [cache_bytes = static_cast<double>(network.cache_bytes)](
                    const PricingConditions& conditions, const ShardFeatures& shard,
                    std::span<double> row) {
      ComputeFeaturesOf(conditions, shard, cache_bytes, row);
    };
    for (const std::string& feature : network.features) {
      columns_.push_back(ComputeFeatureIndex(feature).value());
    }
  } else {
    row_width_ = network.features.size();
    fill_row_ = [columns = FeatureColumns::Create(network.features, network.transforms).value()](
                    const PricingConditions& conditions, ShardFeatures shard,
                    std::span<double> row) {
      shard.pooling_factor = ShardPoolingFactor(conditions, shard);
      columns.Fill(shard, row);
    };
    columns_ = Positions(row_width_);
  }
  for (int m = 0; m < network.members; ++m) {
    const std::string prefix = MemberPrefix(network.kind, m);
    members_.push_back({MlpNetwork(file, prefix + "table", network.layers,
                                   exponential_ ? DenseActivation::kNone : DenseActivation::kRelu),
                        HeadOf(network, file, prefix)});
  }
  if (network.interval) interval_rule_.emplace(*network.interval);
}

std::vector<float> NetworkCompute::Inputs(const PricingConditions& conditions,
                                          std::span<const ShardFeatures> shards) const {
  std::vector<double> row(row_width_);
  std::vector<float> inputs;
  inputs.reserve(shards.size() * columns_.size());
  for (const ShardFeatures& shard : shards) {
    fill_row_(conditions, shard, row);
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      inputs.push_back(normalisation_.Apply(column, row[columns_[column]]));
    }
  }
  return inputs;
}

void NetworkCompute::Represent(const PricingConditions& conditions,
                               std::span<const ShardFeatures> shards, std::span<float> phi) const {
  RepresentBy(num_pricing_, conditions, shards, phi);
}

void NetworkCompute::RepresentBy(std::size_t members, const PricingConditions& conditions,
                                 std::span<const ShardFeatures> shards,
                                 std::span<float> phi) const {
  const std::size_t stride = members * width_;
  assert(phi.size() == shards.size() * stride);
  const std::vector<float> inputs = Inputs(conditions, shards);
  std::vector<float> of_member(shards.size() * width_);
  for (std::size_t m = 0; m < members; ++m) {
    members_[m].phi.Run(static_cast<std::int64_t>(shards.size()), inputs, of_member);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      for (std::size_t w = 0; w < width_; ++w) {
        const float value = of_member[i * width_ + w];
        // What has no rows is not looked up.
        phi[i * stride + m * width_ + w] =
            shards[i].rows == 0 ? 0.0F : (exponential_ ? BoundedExp(value) : value);
      }
    }
  }
}

ComputeCost NetworkCompute::CostOf(const double* values) const {
  if (!splits()) return {.total_ms = FiniteCost(values[0])};
  const float forward_ms = FiniteCost(values[0]);
  const float backward_ms = FiniteCost(values[1]);
  return {FiniteCost(forward_ms + backward_ms), forward_ms, backward_ms};
}

void NetworkCompute::Costs(std::span<const float> sums, std::span<ComputeCost> out) const {
  constexpr std::size_t kBlockRows = 128;
  const std::size_t stride = representation_width();
  assert(sums.size() == out.size() * stride);
  std::array<float, 2 * kBlockRows> of_member;
  std::array<double, 2 * kBlockRows> mean;
  for (std::size_t begin = 0; begin < out.size(); begin += kBlockRows) {
    const std::size_t rows = std::min(kBlockRows, out.size() - begin);
    const std::size_t values = rows * num_outputs_;
    std::fill_n(mean.begin(), values, 0.0);
    for (std::size_t m = 0; m < num_pricing_; ++m) {
      members_[m].head.Run(static_cast<std::int64_t>(rows),
                           sums.subspan(begin * stride + m * width_),
                           static_cast<std::int64_t>(stride), std::span(of_member).first(values));
      for (std::size_t i = 0; i < values; ++i) mean[i] += of_member[i];
    }
    for (std::size_t i = 0; i < values; ++i) mean[i] /= static_cast<double>(num_pricing_);
    for (std::size_t i = 0; i < rows; ++i) out[begin + i] = CostOf(&mean[i * num_outputs_]);
  }
}

std::vector<ComputeInterval> NetworkCompute::Intervals(const PricingConditions& conditions,
                                                       const ShardSets& ranks,
                                                       std::span<const ComputeCost> costs) const {
  if (!interval_rule_) return {};
  const std::size_t stride = members_.size() * width_;
  std::vector<float> phi(ranks.shards.size() * stride);
  RepresentBy(members_.size(), conditions, ranks.shards, phi);
  std::vector<ComputeInterval> intervals;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    std::vector<float> sum(stride, 0.0F);
    for (const int shard : ranks.sets[rank]) {
      const float* const row = &phi[static_cast<std::size_t>(shard) * stride];
      for (std::size_t w = 0; w < stride; ++w) sum[w] += row[w];
    }
    std::vector<double> said;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      std::array<float, 2> values{};
      members_[m].head.Run(1, std::span(sum).subspan(m * width_, width_),
                           std::span(values).first(num_outputs_));
      const std::array<double, 2> of_member = {values[0], values[1]};
      said.push_back(CostOf(of_member.data()).total_ms);
    }
    const double deviation = interval_rule_->Deviation(said, costs[rank].total_ms);
    const auto around = [&](double cost_ms) { return interval_rule_->Around(cost_ms, deviation); };
    ComputeInterval& interval = intervals.emplace_back();
    interval.total = around(costs[rank].total_ms);
    if (!splits()) continue;
    interval.forward = around(costs[rank].forward_ms);
    interval.backward = around(costs[rank].backward_ms);
  }
  return intervals;
}

double NetworkCompute::TrialRun() const {
  ShardFeatures shard;
  shard.rows = shard.table_rows = 1'000'000;
  shard.cols = 64;
  shard.reuse_histogram[0] = 1;
  std::vector<float> phi(members_.size() * width_);
  RepresentBy(members_.size(), {}, {&shard, 1}, phi);
  double sum = 0;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    std::vector<float> values(num_outputs_);
    members_[m].head.Run(1, std::span(phi).subspan(m * width_, width_), values);
    for (const float value : values) sum += value;
  }
  return sum;
}

}  // namespace neuroshard
