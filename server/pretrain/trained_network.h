// Weights of a trained network, in plain arrays: what is written to disk.
#pragma once

#include <cstdint>
#include <vector>

#include "server/pretrain/training_problem.h"

namespace neuroshard {

struct LinearLayer {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::vector<float> weight;  // [outputs, inputs]
  std::vector<float> bias;    // [outputs]

  bool operator==(const LinearLayer&) const = default;
};

// y = head(sum over a sample's rows of relu(row_layers((x - feature_mean) / feature_std))), ReLU
// between head layers. Without row layers a sample is one row and the head is all there is.
struct TrainedNetwork {
  std::vector<float> feature_mean;
  std::vector<float> feature_std;
  std::vector<LinearLayer> row_layers;
  std::vector<LinearLayer> head_layers;

  bool operator==(const TrainedNetwork&) const = default;
};

// Predicted targets [samples.size(), outputs] in ms; negative predictions are raised to 0, as the
// server does. Plain loops, so that what is reported does not depend on the library that trained
// the network.
std::vector<double> PredictSamples(const TrainedNetwork& network, const TrainingProblem& problem,
                                   const std::vector<std::int64_t>& samples);

}  // namespace neuroshard
