#include "server/pretrain/fit/network_definition.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <iterator>

namespace neuroshard {
namespace {

// The least weight that an exponential's parameter is made for: ln of it is far, and finite.
constexpr float kMinWeight = 1e-12f;
// ln of what a fresh phi and a fresh head's weights are about.
constexpr float kFreshLogPhi = -2;
constexpr float kFreshLogHead = -3;
constexpr float kFreshFloor = 0.005f;  // in units of the targets

// Calls change(value) for every value that must not be negative.
template <typename Change>
void ForEachNonNegative(const NetworkDefinition& network, std::span<float> values, Change change) {
  std::int64_t begin = 0;
  for (const TensorSpec& tensor : network.tensors) {
    const std::int64_t end = begin + tensor.count();
    const std::int64_t columns = tensor.shape.back();
    for (std::int64_t row = begin; row < end && tensor.non_negative_columns > 0; row += columns) {
      for (float& value : values.subspan(row, tensor.non_negative_columns)) change(value);
    }
    begin = end;
  }
}

std::span<float> Part(const NetworkDefinition& network, std::span<float> values,
                      const std::string& name) {
  const auto tensor = std::ranges::find_if(
      network.tensors, [&](const TensorSpec& each) { return each.name == name; });
  assert(tensor != network.tensors.end());
  return values.subspan(network.OffsetOf(name), tensor->count());
}

// Values of [outputs, ...] times the factor of their output.
void ScaleOutputs(std::span<const double> scale, std::span<float> values) {
  const std::size_t each = values.size() / scale.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(values[i] * scale[i / each]);
  }
}

// Costs of the weights times scale[output].
void ScaleCosts(const NetworkDefinition& network, std::span<const double> scale,
                std::span<float> weights) {
  const auto scale_part = [&](const std::string& name) {
    ScaleOutputs(scale, Part(network, weights, name));
  };
  switch (network.kind) {
    case NetworkKind::kTableSum:
    case NetworkKind::kDeviceCount:
      // The last layer's.
      for (const TensorSpec& tensor : std::span(network.tensors).last(2)) scale_part(tensor.name);
      return;
    case NetworkKind::kUniversalTableSum:
      scale_part("output.weight");
      scale_part("linear.weight");
      scale_part("linear.bias");
      return;
    case NetworkKind::kUniversalComm:
      for (float& log_cost :
           Part(network, weights, fmt::format("layer.{}.bias", network.row_layers - 1))) {
        log_cost += static_cast<float>(std::log(scale[0]));
      }
      scale_part("floor_ms");
  }
}

}  // namespace

std::int64_t NetworkDefinition::num_values() const {
  std::int64_t count = 0;
  for (const TensorSpec& tensor : tensors) count += tensor.count();
  return count;
}

std::int64_t NetworkDefinition::OffsetOf(std::string_view name) const {
  std::int64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == name) break;
    offset += tensor.count();
  }
  return offset;
}

std::vector<std::int64_t> LayersOf(std::int64_t first, const std::vector<int>& hidden,
                                   std::int64_t last) {
  std::vector<std::int64_t> widths = {first};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(last);
  return widths;
}

NetworkDefinition DefinitionOf(const NetworkManifest& network) {
  const bool has_head_layers = network.kind == NetworkKind::kTableSum;
  return {network.kind, MemberTensors(network), std::ssize(network.layers) - 1,
          has_head_layers ? std::ssize(network.head_layers) - 1 : 0};
}

std::vector<float> WeightsOf(const NetworkDefinition& network, std::span<const float> parameters) {
  std::vector<float> weights(parameters.begin(), parameters.end());
  const bool by_exp = network.kind == NetworkKind::kUniversalTableSum;
  ForEachNonNegative(network, weights, [by_exp](float& value) {
    value = by_exp ? std::exp(value) : std::abs(value);
  });
  return weights;
}

std::vector<float> ParametersOf(const NetworkDefinition& network, std::span<const float> weights) {
  std::vector<float> parameters(weights.begin(), weights.end());
  if (network.kind != NetworkKind::kUniversalTableSum) return parameters;
  ForEachNonNegative(network, parameters,
                     [](float& value) { value = std::log(std::max(value, kMinWeight)); });
  return parameters;
}

std::vector<float> InitialParameters(const NetworkDefinition& network, Random& random) {
  std::vector<float> parameters;
  parameters.reserve(static_cast<std::size_t>(network.num_values()));
  double bound = 0;
  for (const TensorSpec& tensor : network.tensors) {
    // A bias follows its layer's weights.
    if (tensor.shape.size() == 2) bound = 1 / std::sqrt(static_cast<double>(tensor.shape[1]));
    for (std::int64_t i = tensor.count(); i > 0; --i) {
      parameters.push_back(static_cast<float>((2 * random.UniformReal() - 1) * bound));
    }
  }
  const auto part = [&](const std::string& name) { return Part(network, parameters, name); };
  if (network.kind == NetworkKind::kUniversalTableSum) {
    for (float& value : part(fmt::format("table.{}.bias", network.row_layers - 1))) {
      value += kFreshLogPhi;
    }
    for (float& value : part("output.weight")) value += kFreshLogHead;
    const std::span<float> linear = part("linear.weight");
    const std::span<float> bias = part("linear.bias");
    const auto width = static_cast<float>(linear.size() / bias.size());
    std::ranges::fill(linear, -std::log(width));
    std::ranges::fill(bias, kFreshLogHead);
  } else if (network.kind == NetworkKind::kUniversalComm) {
    for (float& value : part("wait_scale")) value = 1;
    for (float& value : part("floor_ms")) value = kFreshFloor;
  }
  return parameters;
}

void AddNetwork(const NetworkDefinition& network, std::span<const float> weights,
                std::span<const double> scale, const Standardisation& standardisation,
                const std::string& prefix, TensorFile& file) {
  std::vector<float> values(weights.begin(), weights.end());
  ScaleCosts(network, scale, values);
  const std::size_t columns = standardisation.deviation.size();
  const std::int64_t first = network.tensors.front().count();
  for (std::size_t i = 0; i < static_cast<std::size_t>(first); ++i) {
    if (standardisation.deviation[i % columns] == 0) values[i] = 0;
  }
  for (const TensorSpec& tensor : network.tensors) {
    const auto part = Part(network, values, tensor.name);
    file.tensors[prefix + tensor.name] = {tensor.shape, {part.begin(), part.end()}};
  }
}

std::vector<float> ReadNetwork(const NetworkDefinition& network, const TensorFile& file,
                               const std::string& prefix, std::span<const double> scale) {
  std::vector<float> weights;
  for (const TensorSpec& tensor : network.tensors) {
    const auto found = file.tensors.find(prefix + tensor.name);
    if (found == file.tensors.end() || found->second.shape != tensor.shape) return {};
    weights.insert(weights.end(), found->second.values.begin(), found->second.values.end());
  }
  std::vector<double> inverse;
  for (const double unit : scale) inverse.push_back(1 / unit);
  ScaleCosts(network, inverse, weights);
  return weights;
}

}  // namespace neuroshard
