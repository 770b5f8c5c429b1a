#include "kernels/cpu/testing/embedding_oracle.h"

#include <cmath>
#include <functional>
#include <set>
#include <span>

namespace neuroshard {
namespace {

// Calls visit(output row, id, factor): that row of the output is the sum of factor x row id.
void ForEachOccurrence(const OracleTable& table, const LookupBatch& batch,
                       const std::function<void(std::int64_t, std::int64_t, double)>& visit) {
  const auto samples = static_cast<std::int64_t>(batch.offsets.size()) - 1;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::int64_t begin = batch.offsets[sample], end = batch.offsets[sample + 1];
    for (std::int64_t i = begin; i < end; ++i) {
      double factor = batch.weights.empty() ? 1.0 : static_cast<double>(batch.weights[i]);
      if (table.pooling_mode == PoolingMode::kMean) factor /= static_cast<double>(end - begin);
      visit(table.pooling_mode == PoolingMode::kNone ? i : sample, batch.ids[i], factor);
    }
  }
}

using Row = std::span<double>;
using Gradient = std::span<const double>;

double SumOfSquares(Gradient values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

double MeanSquare(Gradient values) {
  return SumOfSquares(values) / static_cast<double>(values.size());
}

// |a| / |b|, or 0.
double NormRatio(Gradient a, Gradient b) {
  const double below = SumOfSquares(b);
  return below > 0 ? std::sqrt(SumOfSquares(a) / below) : 0;
}

// Adam's step before the learning rate. `second` has an entry a column, or one for the row.
std::vector<double> AdamStep(const EmbeddingOpSpec& spec, int t, Gradient gradient, Row first,
                             Row second) {
  const double beta1 = spec.beta1, beta2 = spec.beta2;
  const bool row_wise = spec.optimizer == Optimizer::kPartialRowwiseAdam;
  if (row_wise) second[0] = beta2 * second[0] + (1 - beta2) * MeanSquare(gradient);
  std::vector<double> step(gradient.size());
  for (std::size_t c = 0; c < gradient.size(); ++c) {
    const double g = gradient[c];
    first[c] = beta1 * first[c] + (1 - beta1) * g;
    if (!row_wise) second[c] = beta2 * second[c] + (1 - beta2) * g * g;
    const double m = first[c] / (1 - std::pow(beta1, t));
    const double v = second[row_wise ? 0 : c] / (1 - std::pow(beta2, t));
    step[c] = m / (std::sqrt(v) + static_cast<double>(spec.epsilon));
  }
  return step;
}

void UpdateRow(const EmbeddingOpSpec& spec, int t, Gradient gradient, Row weights, Row momentum1,
               Row momentum2) {
  const double rate = spec.learning_rate, epsilon = spec.epsilon;
  const auto subtract = [&](double scale, Gradient step) {
    for (std::size_t c = 0; c < weights.size(); ++c) weights[c] -= scale * step[c];
  };
  switch (spec.optimizer) {
    case Optimizer::kSgd:
      return subtract(rate, gradient);
    case Optimizer::kRowwiseAdagrad:
      momentum1[0] += MeanSquare(gradient);
      return subtract(rate / (std::sqrt(momentum1[0]) + epsilon), gradient);
    case Optimizer::kAdagrad:
      for (std::size_t c = 0; c < weights.size(); ++c) {
        momentum1[c] += gradient[c] * gradient[c];
        weights[c] -= rate * gradient[c] / (std::sqrt(momentum1[c]) + epsilon);
      }
      return;
    case Optimizer::kAdam:
    case Optimizer::kPartialRowwiseAdam:
      return subtract(rate, AdamStep(spec, t, gradient, momentum1, momentum2));
    case Optimizer::kLamb: {
      const std::vector<double> step = AdamStep(spec, t, gradient, momentum1, momentum2);
      return subtract(rate * NormRatio(weights, step), step);
    }
    case Optimizer::kLarsSgd: {
      const double scale = rate * static_cast<double>(spec.eta) * NormRatio(weights, gradient);
      for (std::size_t c = 0; c < weights.size(); ++c) {
        momentum1[c] = static_cast<double>(spec.momentum) * momentum1[c] + scale * gradient[c];
      }
      return subtract(1, momentum1);
    }
    case Optimizer::kNone:
      return;
  }
}

}  // namespace

std::int64_t OutputRows(const OracleTable& table, const LookupBatch& batch) {
  return static_cast<std::int64_t>(
      table.pooling_mode == PoolingMode::kNone ? batch.ids.size() : batch.offsets.size() - 1);
}

std::vector<double> OracleForward(const OracleTable& table, const LookupBatch& batch) {
  std::vector<double> output(OutputRows(table, batch) * table.cols);
  ForEachOccurrence(table, batch, [&](std::int64_t sample, std::int64_t id, double factor) {
    for (std::int64_t c = 0; c < table.cols; ++c) {
      output[sample * table.cols + c] += factor * table.weights[id * table.cols + c];
    }
  });
  return output;
}

std::vector<double> OracleWeightGradient(const OracleTable& table, const LookupBatch& batch,
                                         const std::vector<double>& output_gradient) {
  std::vector<double> gradient(table.weights.size());
  ForEachOccurrence(table, batch, [&](std::int64_t sample, std::int64_t id, double factor) {
    for (std::int64_t c = 0; c < table.cols; ++c) {
      gradient[id * table.cols + c] += factor * output_gradient[sample * table.cols + c];
    }
  });
  return gradient;
}

void OracleUpdate(OracleTable& table, const LookupBatch& batch,
                  const std::vector<double>& output_gradient, const EmbeddingOpSpec& spec) {
  const std::vector<double> gradient = OracleWeightGradient(table, batch, output_gradient);
  const OptimizerStateShape state = StateOfRow(spec.optimizer, table.cols);
  table.momentum1.resize(table.rows * state.momentum1);
  table.momentum2.resize(table.rows * state.momentum2);
  ++table.step;
  for (const std::int64_t row : std::set<std::int64_t>(batch.ids.begin(), batch.ids.end())) {
    UpdateRow(spec, table.step, std::span(gradient).subspan(row * table.cols, table.cols),
              std::span(table.weights).subspan(row * table.cols, table.cols),
              std::span(table.momentum1).subspan(row * state.momentum1, state.momentum1),
              std::span(table.momentum2).subspan(row * state.momentum2, state.momentum2));
  }
}

}  // namespace neuroshard
