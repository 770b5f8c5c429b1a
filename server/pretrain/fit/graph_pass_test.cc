#include "server/pretrain/fit/graph_pass.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "server/pretrain/fit/adam.h"
#include "server/pretrain/fit/batch_builder.h"
#include "server/pretrain/fit/squared_loss.h"

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
  step = graph.AddLinear(step, 7, Activation::kRelu);
  step = graph.AddLinear(step, 5, Activation::kRelu);
  step = graph.AddSum(step);
  step = graph.AddLinear(step, 6, Activation::kRelu);
  graph.AddLinear(step, 2, Activation::kNone);
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

TEST(GraphPassTest, GradientsAreThoseOfFiniteDifferences) {
  const FitProblem problem = SmallProblem();
  const NetworkGraph graph = SmallGraph();
  Random random(9);
  std::vector<float> parameters = graph.InitialParameters(random);
  BatchBuilder builder(problem);
  FitBatch batch;
  builder.Build(kSamples, nullptr, batch);
  GraphPass pass(graph);
  const auto loss = [&] {
    return SquaredLoss(problem, batch, pass.Forward(parameters, batch), 0, {});
  };
  std::vector<float> gradient(graph.num_parameters());
  std::vector<float> output_gradient(5 * 2);
  SquaredLoss(problem, batch, pass.Forward(parameters, batch), 1, output_gradient);
  pass.Backward(parameters, batch, output_gradient, gradient);
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
  EXPECT_GT(largest, 1);
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
