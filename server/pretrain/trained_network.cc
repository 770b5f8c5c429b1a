#include "server/pretrain/trained_network.h"

#include <algorithm>
#include <span>
#include <utility>

namespace neuroshard {
namespace {

enum class Activation { kNone, kRelu };

std::vector<float> Apply(const LinearLayer& layer, std::span<const float> input,
                         Activation activation) {
  std::vector<float> output(layer.bias);
  for (std::int64_t o = 0; o < layer.outputs; ++o) {
    const float* weight = layer.weight.data() + o * layer.inputs;
    float sum = 0;
    for (std::int64_t i = 0; i < layer.inputs; ++i) sum += weight[i] * input[i];
    output[o] += sum;
    if (activation == Activation::kRelu) output[o] = std::max(output[o], 0.0f);
  }
  return output;
}

std::vector<float> RepresentRow(const TrainedNetwork& network, std::span<const float> row) {
  std::vector<float> value(row.size());
  for (std::size_t c = 0; c < row.size(); ++c) {
    value[c] = (row[c] - network.feature_mean[c]) / network.feature_std[c];
  }
  for (const LinearLayer& layer : network.row_layers) {
    value = Apply(layer, value, Activation::kRelu);
  }
  return value;
}

}  // namespace

std::vector<double> PredictSamples(const TrainedNetwork& network, const TrainingProblem& problem,
                                   const std::vector<std::int64_t>& samples) {
  const std::int64_t columns = problem.num_columns();
  std::vector<std::vector<float>> represented(problem.num_rows());
  std::vector<double> predictions;
  predictions.reserve(samples.size() * problem.outputs);
  for (const std::int64_t sample : samples) {
    std::vector<float> sum;
    for (auto i = problem.sample_begin[sample]; i < problem.sample_begin[sample + 1]; ++i) {
      const std::int64_t row = problem.sample_rows[i];
      if (represented[row].empty()) {
        represented[row] =
            RepresentRow(network, std::span(problem.rows).subspan(row * columns, columns));
      }
      if (sum.empty()) sum.resize(represented[row].size());
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += represented[row][k];
    }
    for (std::size_t i = 0; i < network.head_layers.size(); ++i) {
      const bool last = i + 1 == network.head_layers.size();
      sum = Apply(network.head_layers[i], sum, last ? Activation::kNone : Activation::kRelu);
    }
    for (const float value : sum) predictions.push_back(std::max(0.0f, value));
  }
  return predictions;
}

}  // namespace neuroshard
