#include "server/pretrain/fit/network_graph.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace neuroshard {
namespace {

// The least weight that an exponential's parameter is made for: ln of it is far, and finite.
constexpr float kLeastWeight = 1e-12f;

}  // namespace

int NetworkGraph::Append(GraphStep step) {
  steps_.push_back(step);
  return static_cast<int>(steps_.size()) - 1;
}

int NetworkGraph::AddRowInput(std::int64_t columns) {
  return Append({GraphStepKind::kRowInput, GraphLevel::kRow, columns});
}

int NetworkGraph::AddSampleInput(std::int64_t columns) {
  return Append({GraphStepKind::kSampleInput, GraphLevel::kSample, columns});
}

int NetworkGraph::AddLinear(int input, std::int64_t width, const LinearOptions& options) {
  const GraphStep& from = step(input);
  GraphStep linear{GraphStepKind::kLinear, from.level, width, input};
  linear.activation = options.activation;
  linear.greatest_exponent = options.greatest_exponent;
  linear.weight = num_parameters_;
  linear.bias = linear.weight + static_cast<std::size_t>(width * from.width);
  linear.form = options.form;
  linear.formed_inputs = options.formed_inputs;
  linear.formed_bias = options.formed_bias;
  num_parameters_ = linear.bias + static_cast<std::size_t>(width);
  if (options.form != WeightForm::kFree) AddFormedRanges(linear, from.width);
  return Append(linear);
}

void NetworkGraph::AddFormedRanges(const GraphStep& linear, std::int64_t inputs) {
  const std::size_t formed = static_cast<std::size_t>(std::min(linear.formed_inputs, inputs));
  for (std::int64_t o = 0; o < linear.width && formed > 0; ++o) {
    const std::size_t begin = linear.weight + static_cast<std::size_t>(o * inputs);
    formed_.push_back({begin, begin + formed, linear.form});
  }
  if (linear.formed_bias) formed_.push_back({linear.bias, num_parameters_, linear.form});
}

int NetworkGraph::AddSum(int input) {
  const GraphStep& from = step(input);
  assert(from.level == GraphLevel::kRow);
  return Append({GraphStepKind::kSum, GraphLevel::kSample, from.width, input});
}

int NetworkGraph::Add(int first, int second) {
  const GraphStep& from = step(first);
  assert(from.level == step(second).level && from.width == step(second).width);
  return Append({GraphStepKind::kAdd, from.level, from.width, first, second});
}

std::vector<float> NetworkGraph::InitialParameters(Random& random) const {
  std::vector<float> parameters(num_parameters_);
  for (const GraphStep& linear : steps_) {
    if (linear.kind != GraphStepKind::kLinear) continue;
    const double bound = 1 / std::sqrt(static_cast<double>(step(linear.input).width));
    const std::size_t end = linear.bias + static_cast<std::size_t>(linear.width);
    for (std::size_t i = linear.weight; i < end; ++i) {
      parameters[i] = static_cast<float>((2 * random.UniformReal() - 1) * bound);
    }
  }
  return parameters;
}

void NetworkGraph::ToWeights(std::span<const float> parameters, std::span<float> weights) const {
  std::copy(parameters.begin(), parameters.end(), weights.begin());
  for (const FormedRange& range : formed_) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      weights[i] = range.form == WeightForm::kExp ? std::exp(weights[i]) : std::abs(weights[i]);
    }
  }
}

void NetworkGraph::ToParameterGradient(std::span<const float> parameters,
                                       std::span<const float> weights,
                                       std::span<float> gradient) const {
  for (const FormedRange& range : formed_) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      gradient[i] *=
          range.form == WeightForm::kExp ? weights[i] : std::copysign(1.0f, parameters[i]);
    }
  }
}

std::vector<float> NetworkGraph::ToParameters(std::span<const float> weights) const {
  std::vector<float> parameters(weights.begin(), weights.end());
  for (const FormedRange& range : formed_) {
    if (range.form != WeightForm::kExp) continue;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      parameters[i] = std::log(std::max(parameters[i], kLeastWeight));
    }
  }
  return parameters;
}

}  // namespace neuroshard
