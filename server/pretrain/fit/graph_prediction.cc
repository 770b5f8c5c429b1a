#include "server/pretrain/fit/graph_prediction.h"

#include <algorithm>
#include <cstddef>

#include "server/pretrain/fit/batch_builder.h"
#include "server/pretrain/fit/graph_pass.h"

namespace neuroshard {
namespace {

constexpr std::size_t kSamplesAtOnce = 1024;

}  // namespace

std::vector<double> PredictOutputs(const FitProblem& problem, const NetworkGraph& graph,
                                   std::span<const float> weights,
                                   std::span<const std::int64_t> samples) {
  BatchBuilder builder(problem);
  GraphPass pass(graph);
  FitBatch batch;
  std::vector<double> predictions;
  predictions.reserve(samples.size() * static_cast<std::size_t>(problem.outputs));
  const auto outputs = static_cast<std::size_t>(problem.outputs);
  for (std::size_t begin = 0; begin < samples.size(); begin += kSamplesAtOnce) {
    const auto part = samples.subspan(begin, std::min(kSamplesAtOnce, samples.size() - begin));
    builder.Build(part, nullptr, batch);
    const std::span<const float> values = pass.Forward(weights, batch);
    for (std::size_t i = 0; i < values.size(); ++i) {
      predictions.push_back(problem.scale[i % outputs] * values[i]);
    }
  }
  return predictions;
}

}  // namespace neuroshard
