// A network as the list of steps that computes it, with the place of every weight in one flat
// array: a description, no values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {

// A sample is a set of rows: the shards of a device, the ranks of a collective. A step has one line
// of values for each row or for each sample.
enum class GraphLevel { kRow, kSample };

enum class GraphStepKind {
  kRowInput,     // the features of each row
  kSampleInput,  // the features of each sample
  kLinear,       // weight [width, input width] and bias, then the activation
  kSum,          // row -> sample: the sum over the sample's rows
};

enum class Activation { kNone, kRelu };

struct GraphStep {
  GraphStepKind kind = GraphStepKind::kLinear;
  GraphLevel level = GraphLevel::kRow;
  std::int64_t width = 0;
  int input = -1;  // the step before it
  Activation activation = Activation::kNone;
  std::size_t weight = 0;  // where its weights and biases begin in the flat array
  std::size_t bias = 0;
};

// Steps are named by their position; the last one is the network's output.
class NetworkGraph {
 public:
  int AddRowInput(std::int64_t columns);
  int AddSampleInput(std::int64_t columns);
  int AddLinear(int input, std::int64_t width, Activation activation);
  int AddSum(int input);

  const std::vector<GraphStep>& steps() const { return steps_; }
  const GraphStep& output() const { return steps_.back(); }
  std::size_t num_parameters() const { return num_parameters_; }

  // Uniform in +-1/sqrt(inputs) for weights and biases alike: what the paper's implementation
  // starts from.
  std::vector<float> InitialParameters(Random& random) const;

 private:
  int Add(GraphStep step);

  std::vector<GraphStep> steps_;
  std::size_t num_parameters_ = 0;
};

}  // namespace neuroshard
