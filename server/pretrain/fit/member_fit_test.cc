#include "server/pretrain/fit/member_fit.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

// One sample whose feature is 0 and whose cost is far away: the slope of the loss is the bias's
// alone, and stays what it is. Adam then moves the bias by the learning rate in every step.
TEST(MemberFitTest, AdamGoesOnFromEpochToEpoch) {
  TrainingProblem problem;
  problem.columns = {"nothing"};
  problem.rows = {0};
  problem.sample_begin = {0, 1};
  problem.sample_rows = {0};
  problem.targets = {1e6f};
  problem.weights = {1};
  problem.scale = {1};
  NetworkManifest manifest;
  manifest.kind = NetworkKind::kDeviceCount;
  manifest.layers = {1, 1};
  const NetworkDefinition network = DefinitionOf(manifest);
  const SampleSplit split = {{0}, {0}, {}};
  OptimizationConfig config;
  config.loss = TrainingLoss::kMse;
  config.learning_rate = 0.25;
  MemberFit fit(problem, split, network, config, 1);
  MemberState state = InitialState({0.5f, 2}, config.learning_rate);
  for (int epoch = 1; epoch <= 5; ++epoch) {
    ASSERT_TRUE(fit.RunEpoch(NeverStop(), state).ok());
    EXPECT_EQ(state.parameters[0], 0.5f);
    EXPECT_NEAR(state.parameters[1], 2 + 0.25 * epoch, 1e-3);
    EXPECT_EQ(state.steps, epoch);
    EXPECT_EQ(state.best_epoch, epoch);
  }
}

}  // namespace
}  // namespace neuroshard
