#include "server/pretrain/fit/graph_pass.h"

#include <algorithm>
#include <cassert>

#include "server/pretrain/fit/dense_algebra.h"

namespace neuroshard {
namespace {

void Reserve(std::vector<float>& values, std::int64_t count) {
  if (static_cast<std::int64_t>(values.size()) < count) {
    values.resize(static_cast<std::size_t>(count));
  }
}

}  // namespace

GraphPass::GraphPass(const NetworkGraph& graph) : graph_(graph), lines_(graph.steps().size()) {}

const float* GraphPass::Values(int step, const FitBatch& batch) const {
  const auto at = static_cast<std::size_t>(step);
  switch (graph_.steps()[at].kind) {
    case GraphStepKind::kRowInput:
      return batch.row_values.data();
    case GraphStepKind::kSampleInput:
      return batch.sample_values.data();
    default:
      return lines_[at].values.data();
  }
}

std::span<const float> GraphPass::Forward(std::span<const float> parameters,
                                          const FitBatch& batch) {
  assert(parameters.size() == graph_.num_parameters());
  for (std::size_t at = 0; at < lines_.size(); ++at) {
    const GraphStep& step = graph_.steps()[at];
    if (step.input < 0) continue;
    Lines& lines = lines_[at];
    lines.has_gradient = false;
    Reserve(lines.values, Count(step, batch) * step.width);
    if (step.kind == GraphStepKind::kLinear) {
      ForwardLinear(step, batch, parameters, lines.values.data());
    } else {
      SumSegments(Values(step.input, batch), step.width, batch.begin, batch.row,
                  lines.values.data());
    }
  }
  return std::span(lines_.back().values)
      .first(static_cast<std::size_t>(Count(graph_.output(), batch) * graph_.output().width));
}

void GraphPass::ForwardLinear(const GraphStep& step, const FitBatch& batch,
                              std::span<const float> parameters, float* out) {
  const std::int64_t count = Count(step, batch);
  const std::int64_t inputs = graph_.steps()[static_cast<std::size_t>(step.input)].width;
  MultiplyByTransposed(Values(step.input, batch), parameters.data() + step.weight, out, count,
                       inputs, step.width);
  const float* bias = parameters.data() + step.bias;
  if (step.activation == Activation::kRelu) {
    AddBiasRelu(bias, step.width, count, out);
  } else {
    AddBias(bias, step.width, count, out);
  }
}

void GraphPass::Backward(std::span<const float> parameters, const FitBatch& batch,
                         std::span<const float> output_gradient, std::span<float> gradient) {
  assert(gradient.size() == graph_.num_parameters());
  Lines& last = lines_.back();
  last.gradients.assign(output_gradient.begin(), output_gradient.end());
  last.has_gradient = true;
  for (std::size_t at = lines_.size(); at-- > 0;) {
    const GraphStep& step = graph_.steps()[at];
    if (step.input < 0 || !lines_[at].has_gradient) continue;
    if (step.kind == GraphStepKind::kLinear) {
      BackwardLinear(at, batch, parameters, gradient);
    } else {
      BackwardSum(at, batch);
    }
  }
}

void GraphPass::BackwardLinear(std::size_t at, const FitBatch& batch,
                               std::span<const float> parameters, std::span<float> gradient) {
  const GraphStep& step = graph_.steps()[at];
  const auto input = static_cast<std::size_t>(step.input);
  const GraphStep& from = graph_.steps()[input];
  const std::int64_t count = Count(step, batch);
  float* out_gradient = lines_[at].gradients.data();
  if (step.activation == Activation::kRelu) {
    MaskRelu(lines_[at].values.data(), count * step.width, out_gradient);
  }
  AddColumnSums(out_gradient, step.width, count, gradient.data() + step.bias);
  AddTransposedMultiply(out_gradient, Values(step.input, batch), gradient.data() + step.weight,
                        step.width, count, from.width);
  if (from.input < 0) return;
  Lines& to = lines_[input];
  Reserve(to.gradients, count * from.width);
  Multiply(out_gradient, parameters.data() + step.weight, to.gradients.data(), count, step.width,
           from.width, to.has_gradient ? Accumulate::kAdd : Accumulate::kReplace);
  to.has_gradient = true;
}

void GraphPass::BackwardSum(std::size_t at, const FitBatch& batch) {
  const GraphStep& step = graph_.steps()[at];
  const auto input = static_cast<std::size_t>(step.input);
  if (graph_.steps()[input].input < 0) return;
  Lines& to = lines_[input];
  const std::int64_t size = batch.num_rows * step.width;
  Reserve(to.gradients, size);
  if (!to.has_gradient) std::fill_n(to.gradients.begin(), size, 0.0f);
  SpreadSegments(lines_[at].gradients.data(), step.width, batch.begin, batch.row,
                 to.gradients.data());
  to.has_gradient = true;
}

}  // namespace neuroshard
