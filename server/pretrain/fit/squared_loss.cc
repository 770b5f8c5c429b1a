#include "server/pretrain/fit/squared_loss.h"

#include <cstddef>
#include <cstdint>

namespace neuroshard {

double SquaredLoss(const FitProblem& problem, const FitBatch& batch, std::span<const float> outputs,
                   float factor, std::span<float> gradient) {
  const auto width = static_cast<std::size_t>(problem.outputs);
  const auto weight_columns = static_cast<std::size_t>(problem.weight_columns());
  double loss = 0;
  for (std::size_t s = 0; s < static_cast<std::size_t>(batch.num_samples); ++s) {
    const float* output = outputs.data() + s * width;
    const float* target = batch.targets.data() + s * width;
    const float* weight = batch.weights.data() + s * weight_columns;
    float total_error = 0;
    for (std::size_t o = 0; o < width; ++o) {
      const float error = problem.scale[o] * output[o] - target[o];
      total_error += error;
      loss += weight[o] * error * error;
      if (!gradient.empty()) {
        gradient[s * width + o] = 2 * factor * problem.scale[o] * weight[o] * error;
      }
    }
    if (!problem.total_counts) continue;
    loss += weight[width] * total_error * total_error;
    if (gradient.empty()) continue;
    for (std::size_t o = 0; o < width; ++o) {
      gradient[s * width + o] += 2 * factor * problem.scale[o] * weight[width] * total_error;
    }
  }
  return loss;
}

}  // namespace neuroshard
