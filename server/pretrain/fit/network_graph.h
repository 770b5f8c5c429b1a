// A network as the list of steps that computes it, with the place of every weight in one flat
// array: a description, no values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {

// A sample is a set of rows: the shards of a device. A step has one line of values for each row or
// for each sample.
enum class GraphLevel { kRow, kSample };

enum class GraphStepKind {
  kRowInput,     // the features of each row
  kSampleInput,  // the features of each sample
  kLinear,       // weight [width, input width] and bias, then the activation
  kSum,          // row -> sample: the sum over the sample's rows
  kAdd,          // of two steps, value by value
};

// Bounds of what goes into an exponential: costs beyond them are no costs.
inline constexpr float kLeastExponent = -20;

enum class Activation {
  kNone,
  kRelu,
  kExp,          // exp(clamp(x, kLeastExponent, the step's greatest exponent))
  kSignedHalves  // max(x, 0) for the first half of the units (rounded up), min(x, 0) for the rest
};

// How a trained number becomes the weight that is used.
enum class WeightForm {
  kFree,
  kExp,       // exp(number): above 0
  kMagnitude  // |number|: at least 0
};

struct GraphStep {
  GraphStepKind kind = GraphStepKind::kLinear;
  GraphLevel level = GraphLevel::kRow;
  std::int64_t width = 0;
  int input = -1;  // the step before it
  int other = -1;  // kAdd: the second step
  Activation activation = Activation::kNone;
  float greatest_exponent = 0;
  std::size_t weight = 0;  // where its weights and biases begin in the flat array
  std::size_t bias = 0;
  // Its first this many inputs have weights of this form, as the bias has if it is constrained.
  std::int64_t formed_inputs = 0;
  WeightForm form = WeightForm::kFree;
  bool formed_bias = false;
};

struct LinearOptions {
  Activation activation = Activation::kNone;
  float greatest_exponent = 0;     // of kExp
  std::int64_t formed_inputs = 0;  // the first so many inputs' weights have this form
  WeightForm form = WeightForm::kFree;
  bool formed_bias = false;
};

// Steps are named by their position; the last one is the network's output.
class NetworkGraph {
 public:
  int AddRowInput(std::int64_t columns);
  int AddSampleInput(std::int64_t columns);
  int AddLinear(int input, std::int64_t width, const LinearOptions& options = {});
  int AddSum(int input);
  int Add(int first, int second);

  const std::vector<GraphStep>& steps() const { return steps_; }
  const GraphStep& step(int at) const { return steps_[static_cast<std::size_t>(at)]; }
  const GraphStep& output() const { return steps_.back(); }
  std::size_t num_parameters() const { return num_parameters_; }

  // Uniform in +-1/sqrt(inputs) for weights and biases alike: what the paper's implementation
  // starts from.
  std::vector<float> InitialParameters(Random& random) const;

  // The weights that are used, from the trained numbers; and the gradient with respect to the
  // numbers from that with respect to the weights, in place.
  void ToWeights(std::span<const float> parameters, std::span<float> weights) const;
  void ToParameterGradient(std::span<const float> parameters, std::span<const float> weights,
                           std::span<float> gradient) const;
  // Numbers that give these weights.
  std::vector<float> ToParameters(std::span<const float> weights) const;

 private:
  // Part of the flat array whose numbers have one form.
  struct FormedRange {
    std::size_t begin = 0;
    std::size_t end = 0;
    WeightForm form = WeightForm::kFree;
  };

  int Append(GraphStep step);
  void AddFormedRanges(const GraphStep& step, std::int64_t inputs);

  std::vector<GraphStep> steps_;
  std::vector<FormedRange> formed_;
  std::size_t num_parameters_ = 0;
};

}  // namespace neuroshard
