#include "server/pretrain/fit/fit_loss.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace neuroshard {
namespace {

struct LossAndSlope {
  double loss = 0;
  float slope = 0;  // d loss / d prediction
};

LossAndSlope Compare(const FitProblem& problem, float prediction, float target, float weight) {
  if (problem.loss == FitLoss::kSquared) {
    const float error = prediction - target;
    return {weight * error * error, 2 * weight * error};
  }
  const float above = prediction + problem.floor;
  const float log_ratio = std::log(above / (target + problem.floor));
  return {weight * std::abs(log_ratio), std::copysign(weight / above, log_ratio)};
}

}  // namespace

double FitLossOf(const FitProblem& problem, const FitBatch& batch, std::span<const float> outputs,
                 float factor, std::span<float> gradient) {
  const auto width = static_cast<std::size_t>(problem.outputs);
  const auto weight_columns = static_cast<std::size_t>(problem.weight_columns());
  double loss = 0;
  for (std::size_t s = 0; s < static_cast<std::size_t>(batch.num_samples); ++s) {
    const float* output = outputs.data() + s * width;
    const float* target = batch.targets.data() + s * width;
    const float* weight = batch.weights.data() + s * weight_columns;
    float total = 0;
    float total_target = 0;
    for (std::size_t o = 0; o < width; ++o) {
      const float prediction = problem.scale[o] * output[o];
      const LossAndSlope part = Compare(problem, prediction, target[o], weight[o]);
      total += prediction;
      total_target += target[o];
      loss += part.loss;
      if (!gradient.empty()) gradient[s * width + o] = factor * problem.scale[o] * part.slope;
    }
    if (!problem.total_counts) continue;
    const LossAndSlope whole = Compare(problem, total, total_target, weight[width]);
    loss += whole.loss;
    if (gradient.empty()) continue;
    for (std::size_t o = 0; o < width; ++o) {
      gradient[s * width + o] += factor * problem.scale[o] * whole.slope;
    }
  }
  return loss;
}

}  // namespace neuroshard
