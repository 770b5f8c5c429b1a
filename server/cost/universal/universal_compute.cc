#include "server/cost/universal/universal_compute.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>

#include "server/cost/compute_features.h"

namespace neuroshard {
namespace {

constexpr double kLeastExponent = -20;
constexpr double kMostExponent = 10;

// NaN is the largest: what overflows is no reason to pick a shard.
float BoundedExp(double x) {
  const double bounded =
      x < kLeastExponent ? kLeastExponent : (x < kMostExponent ? x : kMostExponent);
  return static_cast<float>(std::exp(bounded));
}

float FiniteCost(float value) {
  if (!std::isfinite(value) && !(value < 0)) return std::numeric_limits<float>::max();
  return std::max(value, 0.0F);
}

// The member's head as layers "head.0" and "head.1".
TensorFile HeadLayers(const TensorFile& file, const std::string& member, std::size_t width,
                      std::size_t hidden, std::size_t outputs) {
  const auto values = [&](const char* name) -> const std::vector<float>& {
    return file.tensors.at(member + name).values;
  };
  const std::size_t inner = hidden + width;
  Tensor first{{}, values(".hidden.weight")};
  first.values.resize(inner * width, 0.0F);
  for (std::size_t k = 0; k < width; ++k) first.values[(hidden + k) * width + k] = 1;
  Tensor first_bias{{}, values(".hidden.bias")};
  first_bias.values.resize(inner, 0.0F);
  Tensor second;
  for (std::size_t o = 0; o < outputs; ++o) {
    const auto append = [&](const std::vector<float>& from, std::size_t columns) {
      const auto row = from.begin() + static_cast<std::ptrdiff_t>(o * columns);
      second.values.insert(second.values.end(), row, row + static_cast<std::ptrdiff_t>(columns));
    };
    append(values(".output.weight"), hidden);
    append(values(".linear.weight"), width);
  }
  TensorFile head;
  head.tensors["head.0.weight"] = std::move(first);
  head.tensors["head.0.bias"] = std::move(first_bias);
  head.tensors["head.1.weight"] = std::move(second);
  head.tensors["head.1.bias"] = Tensor{{}, values(".linear.bias")};
  return head;
}

}  // namespace

UniversalCompute::UniversalCompute(const UniversalComputeManifest& manifest, const TensorFile& file)
    : normalisation_(file),
      cache_bytes_(static_cast<double>(manifest.cache_bytes)),
      width_(static_cast<std::size_t>(manifest.table_layers.back())),
      num_outputs_(manifest.outputs.size()) {
  for (const std::string& feature : manifest.features) {
    features_.push_back(ComputeFeatureIndex(feature).value());
  }
  const std::size_t hidden = static_cast<std::size_t>(manifest.head_width);
  const std::vector<std::int64_t> head_widths = {static_cast<std::int64_t>(width_),
                                                 static_cast<std::int64_t>(hidden + width_),
                                                 static_cast<std::int64_t>(num_outputs_)};
  for (int m = 0; m < manifest.members; ++m) {
    const std::string member = fmt::format("member.{}", m);
    members_.push_back(
        {MlpNetwork(file, member + ".table", manifest.table_layers, Activation::kNone),
         MlpNetwork(HeadLayers(file, member, width_, hidden, num_outputs_), "head", head_widths,
                    Activation::kNone)});
  }
  if (manifest.interval) interval_rule_.emplace(*manifest.interval);
}

std::vector<float> UniversalCompute::Inputs(const PricingConditions& conditions,
                                            std::span<const ShardFeatures> shards) const {
  std::vector<double> row(ComputeFeatureNames().size());
  std::vector<float> inputs;
  inputs.reserve(shards.size() * features_.size());
  for (const ShardFeatures& shard : shards) {
    ComputeFeaturesOf(conditions, shard, cache_bytes_, row);
    for (std::size_t column = 0; column < features_.size(); ++column) {
      inputs.push_back(normalisation_.Apply(column, row[features_[column]]));
    }
  }
  return inputs;
}

void UniversalCompute::RepresentBy(const Member& member, std::span<const float> inputs,
                                   std::span<const ShardFeatures> shards,
                                   std::span<float> phi) const {
  member.phi.Run(static_cast<std::int64_t>(shards.size()), inputs, phi);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto of_shard = phi.subspan(i * width_, width_);
    // What has no rows is not looked up.
    for (float& value : of_shard) value = shards[i].rows == 0 ? 0.0F : BoundedExp(value);
  }
}

void UniversalCompute::CostsBy(const Member& member, std::span<const float> sums,
                               std::span<ComputeCost> out) const {
  constexpr std::size_t kBlockRows = 1024;
  std::array<float, 2 * kBlockRows> values;
  for (std::size_t begin = 0; begin < out.size(); begin += kBlockRows) {
    const std::size_t rows = std::min(kBlockRows, out.size() - begin);
    member.head.Run(static_cast<std::int64_t>(rows), sums.subspan(begin * width_, rows * width_),
                    std::span(values).first(rows * num_outputs_));
    for (std::size_t i = 0; i < rows; ++i) {
      if (!splits()) {
        out[begin + i] = {.total_ms = FiniteCost(values[i])};
      } else {
        const float forward_ms = FiniteCost(values[2 * i]);
        const float backward_ms = FiniteCost(values[2 * i + 1]);
        out[begin + i] = {FiniteCost(forward_ms + backward_ms), forward_ms, backward_ms};
      }
    }
  }
}

void UniversalCompute::Represent(const PricingConditions& conditions,
                                 std::span<const ShardFeatures> shards,
                                 std::span<float> phi) const {
  assert(phi.size() == shards.size() * width_);
  RepresentBy(members_.front(), Inputs(conditions, shards), shards, phi);
}

void UniversalCompute::Costs(std::span<const float> sums, std::span<ComputeCost> out) const {
  assert(sums.size() == out.size() * width_);
  CostsBy(members_.front(), sums, out);
}

std::vector<ComputeInterval> UniversalCompute::Intervals(
    const PricingConditions& conditions,
    std::span<const std::vector<ShardFeatures>> shards_of_ranks,
    std::span<const ComputeCost> costs) const {
  if (!interval_rule_) return {};
  std::vector<ShardFeatures> shards;
  for (const auto& of_rank : shards_of_ranks) {
    shards.insert(shards.end(), of_rank.begin(), of_rank.end());
  }
  const std::vector<float> inputs = Inputs(conditions, shards);
  std::vector<float> phi(shards.size() * width_);
  std::vector<ComputeCost> of_member(costs.size());
  std::vector<double> said(costs.size() * members_.size());  // [ranks, members]
  for (std::size_t m = 0; m < members_.size(); ++m) {
    RepresentBy(members_[m], inputs, shards, phi);
    std::vector<float> sums(costs.size() * width_, 0.0F);
    const float* row = phi.data();
    for (std::size_t rank = 0; rank < costs.size(); ++rank) {
      for (std::size_t s = 0; s < shards_of_ranks[rank].size(); ++s, row += width_) {
        for (std::size_t w = 0; w < width_; ++w) sums[rank * width_ + w] += row[w];
      }
    }
    CostsBy(members_[m], sums, of_member);
    for (std::size_t rank = 0; rank < costs.size(); ++rank) {
      said[rank * members_.size() + m] = of_member[rank].total_ms;
    }
  }
  std::vector<ComputeInterval> intervals;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    const double deviation = interval_rule_->Deviation(
        std::span<const double>(said).subspan(rank * members_.size(), members_.size()));
    const auto around = [&](double cost_ms) { return interval_rule_->Around(cost_ms, deviation); };
    ComputeInterval& interval = intervals.emplace_back();
    interval.total = around(costs[rank].total_ms);
    if (!splits()) continue;
    interval.forward = around(costs[rank].forward_ms);
    interval.backward = around(costs[rank].backward_ms);
  }
  return intervals;
}

double UniversalCompute::TrialRun() const {
  ShardFeatures shard;
  shard.rows = shard.table_rows = 1'000'000;
  shard.cols = 64;
  shard.reuse_histogram[0] = 1;
  double sum = 0;
  for (const Member& member : members_) {
    std::vector<float> phi(width_);
    RepresentBy(member, Inputs({}, {&shard, 1}), {&shard, 1}, phi);
    std::vector<float> values(num_outputs_);
    member.head.Run(1, phi, values);
    for (const float value : values) sum += value;
  }
  return sum;
}

}  // namespace neuroshard
