#include "server/pretrain/fit/network_graph.h"

#include <cassert>
#include <cmath>

namespace neuroshard {

int NetworkGraph::Add(GraphStep step) {
  steps_.push_back(step);
  return static_cast<int>(steps_.size()) - 1;
}

int NetworkGraph::AddRowInput(std::int64_t columns) {
  return Add({GraphStepKind::kRowInput, GraphLevel::kRow, columns});
}

int NetworkGraph::AddSampleInput(std::int64_t columns) {
  return Add({GraphStepKind::kSampleInput, GraphLevel::kSample, columns});
}

int NetworkGraph::AddLinear(int input, std::int64_t width, Activation activation) {
  const GraphStep& from = steps_[static_cast<std::size_t>(input)];
  GraphStep step{GraphStepKind::kLinear, from.level, width, input, activation};
  step.weight = num_parameters_;
  step.bias = step.weight + static_cast<std::size_t>(width * from.width);
  num_parameters_ = step.bias + static_cast<std::size_t>(width);
  return Add(step);
}

int NetworkGraph::AddSum(int input) {
  const GraphStep& from = steps_[static_cast<std::size_t>(input)];
  assert(from.level == GraphLevel::kRow);
  return Add({GraphStepKind::kSum, GraphLevel::kSample, from.width, input});
}

std::vector<float> NetworkGraph::InitialParameters(Random& random) const {
  std::vector<float> parameters(num_parameters_);
  for (const GraphStep& step : steps_) {
    if (step.kind != GraphStepKind::kLinear) continue;
    const auto inputs = static_cast<double>(steps_[static_cast<std::size_t>(step.input)].width);
    const double bound = 1 / std::sqrt(inputs);
    const std::size_t end = step.bias + static_cast<std::size_t>(step.width);
    for (std::size_t i = step.weight; i < end; ++i) {
      parameters[i] = static_cast<float>((2 * random.UniformReal() - 1) * bound);
    }
  }
  return parameters;
}

}  // namespace neuroshard
