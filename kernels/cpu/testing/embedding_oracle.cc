#include "kernels/cpu/testing/embedding_oracle.h"

#include <cmath>
#include <functional>

namespace neuroshard {
namespace {

// Calls visit(sample, id, factor): the sample's output is the sum of factor x row id.
void ForEachOccurrence(const OracleTable& table, const LookupBatch& batch,
                       const std::function<void(std::int64_t, std::int64_t, double)>& visit) {
  const auto samples = static_cast<std::int64_t>(batch.offsets.size()) - 1;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::int64_t begin = batch.offsets[sample], end = batch.offsets[sample + 1];
    for (std::int64_t i = begin; i < end; ++i) {
      double factor = batch.weights.empty() ? 1.0 : static_cast<double>(batch.weights[i]);
      if (table.pooling_mode == PoolingMode::kMean) factor /= static_cast<double>(end - begin);
      visit(sample, batch.ids[i], factor);
    }
  }
}

}  // namespace

std::vector<double> OracleForward(const OracleTable& table, const LookupBatch& batch) {
  std::vector<double> output((batch.offsets.size() - 1) * table.cols);
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
  for (std::int64_t row = 0; row < table.rows; ++row) {
    double step = spec.learning_rate;
    if (spec.optimizer == Optimizer::kRowwiseAdagrad) {
      double squares = 0;
      for (std::int64_t c = 0; c < table.cols; ++c) {
        squares += gradient[row * table.cols + c] * gradient[row * table.cols + c];
      }
      if (squares == 0) continue;
      table.state[row] += squares / static_cast<double>(table.cols);
      step /= std::sqrt(table.state[row]) + static_cast<double>(spec.epsilon);
    }
    for (std::int64_t c = 0; c < table.cols; ++c) {
      table.weights[row * table.cols + c] -= step * gradient[row * table.cols + c];
    }
  }
}

}  // namespace neuroshard
