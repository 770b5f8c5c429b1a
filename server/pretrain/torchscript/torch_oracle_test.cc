// libtorch as the oracle of the training engine in fit/: what its passes, losses and steps give is
// what autograd and torch::optim::Adam give.
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "server/pretrain/fit/adam.h"
#include "server/pretrain/fit/batch_builder.h"
#include "server/pretrain/fit/fit_loss.h"
#include "server/pretrain/fit/graph_pass.h"

namespace neuroshard {
namespace {

at::Tensor ToTensor(const std::vector<float>& values, std::vector<std::int64_t> shape) {
  at::Tensor tensor = torch::empty(shape, at::kFloat);
  std::copy_n(values.begin(), tensor.numel(), tensor.data_ptr<float>());
  return tensor;
}

std::vector<float> Uniform(Random& random, std::int64_t count, double low, double high) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(low + (high - low) * random.UniformReal());
  }
  return values;
}

// 12 samples over 9 rows, with rows shared and repeated and one sample without any.
FitProblem RandomProblem(std::int64_t outputs, bool total_counts, Random& random) {
  constexpr std::int64_t kRows = 9;
  constexpr std::int64_t kSamples = 12;
  FitProblem problem;
  problem.row_columns = random.Between(1, 6);
  problem.rows = Uniform(random, kRows * problem.row_columns, -2, 2);
  problem.sample_columns = random.Between(1, 6);
  problem.sample_values = Uniform(random, kSamples * problem.sample_columns, -2, 2);
  problem.sample_begin = {0};
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    for (std::int64_t i = sample == 0 ? 0 : random.Between(1, 5); i > 0; --i) {
      problem.sample_rows.push_back(random.Between(0, kRows - 1));
    }
    problem.sample_begin.push_back(static_cast<std::int64_t>(problem.sample_rows.size()));
  }
  problem.outputs = outputs;
  problem.total_counts = total_counts;
  problem.scale = Uniform(random, outputs, 0.5, 3);
  problem.targets = Uniform(random, kSamples * outputs, 0, 4);
  problem.weights = Uniform(random, kSamples * problem.weight_columns(), 0, 1);
  problem.weights.front() = 0;  // not known
  return problem;
}

LinearOptions RandomOptions(Random& random) {
  constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kExp,
                                         Activation::kSignedHalves};
  constexpr WeightForm kForms[] = {WeightForm::kFree, WeightForm::kExp, WeightForm::kMagnitude};
  LinearOptions options;
  options.activation = kActivations[random.Below(4)];
  options.greatest_exponent = 0.3f;  // low: some values are to reach it
  options.form = kForms[random.Below(3)];
  options.formed_inputs = random.Between(0, 30);  // none, some or all
  options.formed_bias = random.Below(2) == 0;
  return options;
}

// Layers on rows and their sum, layers on what samples have of their own, or both and their sum.
NetworkGraph RandomGraph(const FitProblem& problem, bool rows, bool samples, Random& random) {
  NetworkGraph graph;
  const std::int64_t width = random.Between(1, 12);
  int of_rows = -1;
  int of_samples = -1;
  if (rows) {
    int step = graph.AddRowInput(problem.row_columns);
    for (std::int64_t i = random.Between(0, 2); i > 0; --i) {
      step = graph.AddLinear(step, random.Between(1, 20), RandomOptions(random));
    }
    of_rows = graph.AddSum(graph.AddLinear(step, width, RandomOptions(random)));
  }
  if (samples) {
    of_samples =
        graph.AddLinear(graph.AddSampleInput(problem.sample_columns), width, RandomOptions(random));
  }
  int step = !samples ? of_rows : !rows ? of_samples : graph.Add(of_rows, of_samples);
  // A step that two others read.
  const int left = graph.AddLinear(step, 5, RandomOptions(random));
  const int right = graph.AddLinear(step, 5, RandomOptions(random));
  step = graph.Add(left, right);
  LinearOptions last = RandomOptions(random);
  if (problem.loss == FitLoss::kLogRatio) last.activation = Activation::kExp;
  graph.AddLinear(step, problem.outputs, last);
  return graph;
}

at::Tensor TorchForm(WeightForm form, const at::Tensor& numbers) {
  return form == WeightForm::kExp         ? numbers.exp()
         : form == WeightForm::kMagnitude ? numbers.abs()
                                          : numbers;
}

// The weights of a step are slices of one flat parameter.
at::Tensor TorchLinear(const GraphStep& step, const at::Tensor& x, const at::Tensor& parameters) {
  const auto weight_at = static_cast<std::int64_t>(step.weight);
  const auto bias_at = static_cast<std::int64_t>(step.bias);
  const std::int64_t inputs = x.size(1);
  const std::int64_t formed = std::min(step.formed_inputs, inputs);
  const at::Tensor numbers =
      parameters.slice(0, weight_at, weight_at + step.width * inputs).reshape({step.width, inputs});
  const at::Tensor weight =
      at::cat({TorchForm(step.form, numbers.slice(1, 0, formed)), numbers.slice(1, formed)}, 1);
  const at::Tensor bias = parameters.slice(0, bias_at, bias_at + step.width);
  const at::Tensor y = at::linear(x, weight, step.formed_bias ? TorchForm(step.form, bias) : bias);
  switch (step.activation) {
    case Activation::kRelu:
      return at::relu(y);
    case Activation::kExp:
      return y.clamp(kLeastExponent, step.greatest_exponent).exp();
    case Activation::kSignedHalves: {
      const std::int64_t half = (step.width + 1) / 2;
      return at::cat({y.slice(1, 0, half).clamp_min(0), y.slice(1, half).clamp_max(0)}, 1);
    }
    case Activation::kNone:
      break;
  }
  return y;
}

at::Tensor TorchSum(const at::Tensor& x, const FitBatch& batch) {
  at::Tensor counts = torch::zeros({batch.num_samples, batch.num_rows});
  for (std::int64_t s = 0; s < batch.num_samples; ++s) {
    const auto begin = static_cast<std::size_t>(batch.begin[static_cast<std::size_t>(s)]);
    const auto end = static_cast<std::size_t>(batch.begin[static_cast<std::size_t>(s) + 1]);
    for (std::size_t i = begin; i < end; ++i) counts[s][batch.row[i]] += 1;
  }
  return at::matmul(counts, x);
}

// The same network as an expression of autograd.
at::Tensor TorchForward(const NetworkGraph& graph, const FitBatch& batch,
                        const at::Tensor& parameters) {
  std::vector<at::Tensor> values;
  const auto at_step = [&](int step) { return values[static_cast<std::size_t>(step)]; };
  for (const GraphStep& step : graph.steps()) {
    switch (step.kind) {
      case GraphStepKind::kRowInput:
        values.push_back(ToTensor(batch.row_values, {batch.num_rows, step.width}));
        break;
      case GraphStepKind::kSampleInput:
        values.push_back(ToTensor(batch.sample_values, {batch.num_samples, step.width}));
        break;
      case GraphStepKind::kLinear:
        values.push_back(TorchLinear(step, at_step(step.input), parameters));
        break;
      case GraphStepKind::kSum:
        values.push_back(TorchSum(at_step(step.input), batch));
        break;
      case GraphStepKind::kAdd:
        values.push_back(at_step(step.input) + at_step(step.other));
        break;
    }
  }
  return values.back();
}

at::Tensor TorchLoss(const FitProblem& problem, const at::Tensor& predictions,
                     const at::Tensor& targets, const at::Tensor& weights) {
  if (problem.loss == FitLoss::kSquared) {
    return (weights * (predictions - targets) * (predictions - targets)).sum();
  }
  const at::Tensor log_ratio =
      (predictions + problem.floor).log() - (targets + problem.floor).log();
  return (weights * log_ratio.abs()).sum();
}

at::Tensor TorchLoss(const FitProblem& problem, const FitBatch& batch, const at::Tensor& outputs) {
  const at::Tensor predictions = outputs * ToTensor(problem.scale, {problem.outputs});
  const at::Tensor targets = ToTensor(batch.targets, {batch.num_samples, problem.outputs});
  const at::Tensor weights = ToTensor(batch.weights, {batch.num_samples, problem.weight_columns()});
  const at::Tensor loss =
      TorchLoss(problem, predictions, targets, weights.slice(1, 0, problem.outputs));
  if (!problem.total_counts) return loss;
  return loss +
         TorchLoss(problem, predictions.sum(1), targets.sum(1), weights.select(1, problem.outputs));
}

// Relative to the largest: a sum of many terms is no more exact than that.
void ExpectClose(std::span<const float> ours, const at::Tensor& expected, double tolerance,
                 const std::string& what) {
  const at::Tensor plain = expected.detach().contiguous();
  ASSERT_EQ(static_cast<std::int64_t>(ours.size()), plain.numel()) << what;
  const float* values = plain.data_ptr<float>();
  double largest = 0;
  for (std::int64_t i = 0; i < plain.numel(); ++i) {
    largest = std::max<double>(largest, std::abs(values[i]));
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_NEAR(ours[i], values[i], tolerance * largest) << what << " " << i;
  }
}

TEST(TorchOracleTest, ForwardGradientAndAdamStepsAreLibtorchs) {
  Random random(17);
  int with_gradient = 0;
  for (int round = 0; round < 48; ++round) {
    SCOPED_TRACE(round);
    const std::int64_t outputs = random.Between(1, 3);
    FitProblem problem = RandomProblem(outputs, round % 2 == 0, random);
    if (round % 4 < 2) problem.loss = FitLoss::kLogRatio;
    problem.floor = 0.1f;
    const NetworkGraph graph = RandomGraph(problem, round % 3 != 0, round % 3 != 1, random);
    BatchBuilder builder(problem);
    FitBatch batch;
    builder.Build(std::vector<std::int64_t>{7, 0, 3, 11, 5, 1}, nullptr, batch);

    std::vector<float> parameters = graph.InitialParameters(random);
    std::vector<float> weights(parameters.size());
    const auto count = static_cast<std::int64_t>(parameters.size());
    const at::Tensor leaf = ToTensor(parameters, {count}).set_requires_grad(true);
    constexpr double kLearningRate = 0.01;
    torch::optim::Adam torch_adam({leaf}, torch::optim::AdamOptions(kLearningRate));
    AdamState adam;
    GraphPass pass(graph);
    std::vector<float> output_gradient(static_cast<std::size_t>(batch.num_samples * outputs));
    for (int step = 0; step < 3; ++step) {
      graph.ToWeights(parameters, weights);
      const auto values = pass.Forward(weights, batch);
      const double loss = FitLossOf(problem, batch, values, 1, output_gradient);
      std::vector<float> gradient(parameters.size());
      pass.Backward(weights, batch, output_gradient, gradient);
      graph.ToParameterGradient(parameters, weights, gradient);
      AdamStep(gradient, kLearningRate, adam, parameters);

      torch_adam.zero_grad();
      const at::Tensor torch_values = TorchForward(graph, batch, leaf);
      const at::Tensor torch_loss = TorchLoss(problem, batch, torch_values);
      torch_loss.backward();
      torch_adam.step();
      ExpectClose(values, torch_values, 1e-5, "value");
      EXPECT_NEAR(loss, torch_loss.item<float>(), 1e-5 * std::abs(loss));
      ExpectClose(gradient, leaf.grad(), 1e-5, "gradient");
      // A step is of the size of the learning rate whatever the gradient's, rounding included.
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const double expected = leaf.detach()[at].item<float>();
        const bool rounding = std::abs(gradient[i]) < 1e-4 * leaf.grad().abs().max().item<float>();
        ASSERT_NEAR(parameters[i], expected, (rounding ? 2.0 : 1e-3) * kLearningRate) << i;
        with_gradient += gradient[i] != 0;
        parameters[i] = static_cast<float>(expected);
      }
    }
  }
  EXPECT_GT(with_gradient, 5000);
}

}  // namespace
}  // namespace neuroshard
