#include "server/pretrain/fit/graph_pass.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "server/pretrain/fit/adam.h"
#include "server/pretrain/fit/batch_builder.h"
#include "server/pretrain/fit/fit_loss.h"

namespace neuroshard {
namespace {

// Five samples over four rows, some shared and one twice in a sample; two outputs and their total.
FitProblem SmallProblem() {
  FitProblem problem;
  problem.row_columns = 3;
  Random random(4);
  for (int i = 0; i < 4 * 3; ++i) {
    problem.rows.push_back(static_cast<float>(2 * random.UniformReal() - 1));
  }
  problem.sample_columns = 1;
  problem.sample_values = {0.5f, -1, 0.2f, 1, 0};
  problem.sample_begin = {0, 1, 3, 6, 8, 9};
  problem.sample_rows = {0, 1, 2, 3, 3, 0, 2, 1, 2};
  problem.outputs = 2;
  problem.total_counts = true;
  problem.scale = {2, 0.5f};
  for (int s = 0; s < 5; ++s) {
    problem.targets.insert(problem.targets.end(), {1.0f + static_cast<float>(s), 2.0f});
    problem.weights.insert(problem.weights.end(), {1.0f, 0.0f, 0.3f});
  }
  return problem;
}

NetworkGraph SmallGraph() {
  NetworkGraph graph;
  int step = graph.AddRowInput(3);
  step = graph.AddLinear(step, 7, {Activation::kRelu});
  step = graph.AddLinear(step, 5, {Activation::kRelu});
  step = graph.AddSum(step);
  step = graph.AddLinear(step, 6, {Activation::kRelu});
  graph.AddLinear(step, 2);
  return graph;
}

const std::vector<std::int64_t> kSamples = {4, 2, 1, 0, 3};

TEST(BatchBuilderTest, LaysARowOutOnceForAllSamplesThatShareIt) {
  const FitProblem problem = SmallProblem();
  BatchBuilder builder(problem);
  FitBatch batch;
  for (int again = 0; again < 2; ++again) {
    builder.Build(std::vector<std::int64_t>{2, 4}, nullptr, batch);
    EXPECT_EQ(batch.num_rows, 3);
    EXPECT_EQ(batch.row, (std::vector<std::int64_t>{0, 0, 1, 2}));
    EXPECT_EQ(batch.begin, (std::vector<std::int64_t>{0, 3, 4}));
    EXPECT_EQ(batch.row_values[0], problem.rows[9]);
    EXPECT_EQ(batch.targets[2], 5.0f);
  }
}

// Everything else that a step can be.
NetworkGraph FormedGraph() {
  NetworkGraph graph;
  int step = graph.AddRowInput(3);
  step = graph.AddLinear(step, 7, {Activation::kSignedHalves, 0, 2, WeightForm::kMagnitude});
  step = graph.AddLinear(step, 4, {Activation::kExp, 5});
  step = graph.AddSum(step);
  const int hidden = graph.AddLinear(step, 6, {Activation::kRelu});
  const int head = graph.AddLinear(hidden, 2, {Activation::kNone, 0, 6, WeightForm::kExp, true});
  const int linear = graph.AddLinear(step, 2, {Activation::kNone, 0, 4, WeightForm::kMagnitude});
  const int known = graph.AddLinear(graph.AddSampleInput(1), 2, {Activation::kExp, 5});
  graph.Add(graph.Add(head, linear), known);
  return graph;
}

struct GradientCase {
  const char* name;
  NetworkGraph graph;
  FitLoss loss;
};

TEST(GraphPassTest, GradientsAreThoseOfFiniteDifferences) {
  for (const GradientCase& each : {GradientCase{"plain", SmallGraph(), FitLoss::kSquared},
                                   GradientCase{"formed", FormedGraph(), FitLoss::kSquared},
                                   GradientCase{"log ratio", FormedGraph(), FitLoss::kLogRatio}}) {
    SCOPED_TRACE(each.name);
    FitProblem problem = SmallProblem();
    problem.loss = each.loss;
    problem.floor = 0.1f;
    const NetworkGraph& graph = each.graph;
    Random random(9);
    std::vector<float> parameters = graph.InitialParameters(random);
    // Away from where |x| and relu have no slope.
    for (float& value : parameters) value += value < 0 ? -0.01f : 0.01f;
    std::vector<float> weights(parameters.size());
    BatchBuilder builder(problem);
    FitBatch batch;
    builder.Build(kSamples, nullptr, batch);
    GraphPass pass(graph);
    const auto loss = [&] {
      graph.ToWeights(parameters, weights);
      return FitLossOf(problem, batch, pass.Forward(weights, batch), 0, {});
    };
    loss();
    std::vector<float> gradient(graph.num_parameters());
    std::vector<float> output_gradient(5 * 2);
    FitLossOf(problem, batch, pass.Forward(weights, batch), 1, output_gradient);
    pass.Backward(weights, batch, output_gradient, gradient);
    graph.ToParameterGradient(parameters, weights, gradient);
    double largest = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float before = parameters[i];
      constexpr float kStep = 1e-3f;
      parameters[i] = before + kStep;
      const double above = loss();
      parameters[i] = before - kStep;
      const double below = loss();
      parameters[i] = before;
      const double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR(gradient[i], expected, 2e-2 + 1e-2 * std::abs(expected)) << "parameter " << i;
      largest = std::max(largest, std::abs(expected));
    }
    EXPECT_GT(largest, 0.3);
  }
}

TEST(NetworkGraphTest, FormedWeightsAreNeverNegativeAndComeBack) {
  const NetworkGraph graph = FormedGraph();
  Random random(2);
  const std::vector<float> parameters = graph.InitialParameters(random);
  std::vector<float> weights(parameters.size());
  graph.ToWeights(parameters, weights);
  const GraphStep& first = graph.step(1);
  for (int unit = 0; unit < 7; ++unit) {
    const std::size_t at = first.weight + static_cast<std::size_t>(unit) * 3;
    EXPECT_GE(weights[at], 0);
    EXPECT_GE(weights[at + 1], 0);
    EXPECT_EQ(weights[at + 2], parameters[at + 2]) << "a free column";
  }
  std::vector<float> again(weights.size());
  graph.ToWeights(graph.ToParameters(weights), again);
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(again[i], weights[i], 1e-6);
}

TEST(AdamTest, TheFirstStepIsTheLearningRateAgainstTheSign) {
  AdamState state;
  std::vector<float> parameters = {1, 2, 3};
  AdamStep(std::vector<float>{100.0f, -1e-3f, 0.0f}, 0.1, state, parameters);
  EXPECT_NEAR(parameters[0], 0.9, 1e-5);
  EXPECT_NEAR(parameters[1], 2.1, 1e-4);
  EXPECT_EQ(parameters[2], 3);
}

}  // namespace
}  // namespace neuroshard
