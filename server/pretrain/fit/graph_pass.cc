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

std::span<const float> GraphPass::Forward(std::span<const float> weights, const FitBatch& batch) {
  assert(weights.size() == graph_.num_parameters());
  for (std::size_t at = 0; at < lines_.size(); ++at) {
    const GraphStep& step = graph_.steps()[at];
    if (step.input < 0) continue;
    Lines& lines = lines_[at];
    lines.has_gradient = false;
    Reserve(lines.values, Count(step, batch) * step.width);
    switch (step.kind) {
      case GraphStepKind::kLinear:
        ForwardLinear(step, batch, weights, lines.values.data());
        break;
      case GraphStepKind::kSum:
        SumSegments(Values(step.input, batch), step.width, batch.begin, batch.row,
                    lines.values.data());
        break;
      default:
        AddLines(Values(step.input, batch), Values(step.other, batch),
                 Count(step, batch) * step.width, lines.values.data());
    }
  }
  return std::span(lines_.back().values)
      .first(static_cast<std::size_t>(Count(graph_.output(), batch) * graph_.output().width));
}

void GraphPass::ForwardLinear(const GraphStep& step, const FitBatch& batch,
                              std::span<const float> weights, float* out) {
  const std::int64_t count = Count(step, batch);
  const std::int64_t inputs = graph_.steps()[static_cast<std::size_t>(step.input)].width;
  MultiplyByTransposed(Values(step.input, batch), weights.data() + step.weight, out, count, inputs,
                       step.width);
  const float* bias = weights.data() + step.bias;
  switch (step.activation) {
    case Activation::kRelu:
      AddBiasRelu(bias, step.width, count, out);
      return;
    case Activation::kExp:
      AddBiasExp(bias, step.width, count, kLeastExponent, step.greatest_exponent, out);
      return;
    case Activation::kSignedHalves:
      AddBiasSignedHalves(bias, step.width, count, out);
      return;
    case Activation::kNone:
      AddBias(bias, step.width, count, out);
  }
}

void GraphPass::Backward(std::span<const float> weights, const FitBatch& batch,
                         std::span<const float> output_gradient, std::span<float> gradient) {
  assert(gradient.size() == graph_.num_parameters());
  Lines& last = lines_.back();
  last.gradients.assign(output_gradient.begin(), output_gradient.end());
  last.has_gradient = true;
  for (std::size_t at = lines_.size(); at-- > 0;) {
    const GraphStep& step = graph_.steps()[at];
    if (step.input < 0 || !lines_[at].has_gradient) continue;
    switch (step.kind) {
      case GraphStepKind::kLinear:
        BackwardLinear(at, batch, weights, gradient);
        break;
      case GraphStepKind::kSum:
        BackwardSum(at, batch);
        break;
      default:
        BackwardAdd(at, batch);
    }
  }
}

void GraphPass::BackwardLinear(std::size_t at, const FitBatch& batch,
                               std::span<const float> weights, std::span<float> gradient) {
  const GraphStep& step = graph_.steps()[at];
  const auto input = static_cast<std::size_t>(step.input);
  const GraphStep& from = graph_.steps()[input];
  const std::int64_t count = Count(step, batch);
  float* out_gradient = lines_[at].gradients.data();
  if (step.activation == Activation::kExp) {
    MultiplyByExp(lines_[at].values.data(), count * step.width, kLeastExponent,
                  step.greatest_exponent, out_gradient);
  } else if (step.activation != Activation::kNone) {
    // What a unit of either half lets through is what it did not make 0.
    MaskZeros(lines_[at].values.data(), count * step.width, out_gradient);
  }
  AddColumnSums(out_gradient, step.width, count, gradient.data() + step.bias);
  AddTransposedMultiply(out_gradient, Values(step.input, batch), gradient.data() + step.weight,
                        step.width, count, from.width);
  if (from.input < 0) return;
  Lines& to = lines_[input];
  Reserve(to.gradients, count * from.width);
  Multiply(out_gradient, weights.data() + step.weight, to.gradients.data(), count, step.width,
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

void GraphPass::BackwardAdd(std::size_t at, const FitBatch& batch) {
  const GraphStep& step = graph_.steps()[at];
  const std::int64_t size = Count(step, batch) * step.width;
  for (const int input : {step.input, step.other}) {
    if (graph_.step(input).input < 0) continue;
    Lines& to = lines_[static_cast<std::size_t>(input)];
    Reserve(to.gradients, size);
    if (!to.has_gradient) std::fill_n(to.gradients.begin(), size, 0.0f);
    AddLines(to.gradients.data(), lines_[at].gradients.data(), size, to.gradients.data());
    to.has_gradient = true;
  }
}

}  // namespace neuroshard
