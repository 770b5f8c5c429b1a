#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/random.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/report/regression_metrics.h"
#include "server/pretrain/train/ensemble.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

class RecordingObserver final : public TrainingObserver {
 public:
  void OnEpoch(const EpochReport& report) override { epochs.push_back(report); }
  void OnFinished(const EpochReport&, const std::string& why) override { reason = why; }
  void OnWarning(const std::string& message) override { warnings.push_back(message); }

  std::vector<EpochReport> epochs;
  std::string reason;
  std::vector<std::string> warnings;
};

// Samples of 1..6 out of 200 rows (dim, pooling, rows); cost = 0.05 + sum of dim * pooling * (1 +
// log rows / 10), in two parts.
TrainingProblem SumProblem(std::int64_t samples, std::uint64_t seed) {
  Random random(seed);
  TrainingProblem problem;
  problem.name = "compute";
  problem.columns = {"dim", "pooling_factor", "row", "constant"};
  std::vector<double> cost;
  for (int r = 0; r < 200; ++r) {
    const double dim = 4.0 * static_cast<double>(1 << random.Below(6));
    const double pooling = 1 + 20 * random.UniformReal();
    const double log_rows = 5 + 10 * random.UniformReal();
    for (const double value : {dim, pooling, log_rows, 3.0}) {
      problem.rows.push_back(static_cast<float>(value));
    }
    cost.push_back(1e-3 * dim * pooling * (1 + log_rows / 10));
  }
  problem.outputs = 2;
  problem.total_counts = true;
  problem.sample_begin = {0};
  for (std::int64_t s = 0; s < samples; ++s) {
    double sum = 0.05;
    for (std::uint64_t n = 1 + random.Below(6); n > 0; --n) {
      const std::uint64_t row = random.Below(200);
      problem.sample_rows.push_back(static_cast<std::int64_t>(row));
      sum += cost[row];
    }
    problem.sample_begin.push_back(static_cast<std::int64_t>(problem.sample_rows.size()));
    problem.targets.push_back(static_cast<float>(0.4 * sum));
    problem.targets.push_back(static_cast<float>(0.6 * sum));
  }
  return problem;
}

// Ranks enter together; each pays for its own columns and for the largest of all.
TrainingProblem CommProblem(std::int64_t samples) {
  Random random(3);
  TrainingProblem problem;
  problem.name = "backward_comm x3";
  problem.columns = {"dim_sum_0", "dim_sum_1", "dim_sum_2"};
  problem.outputs = 3;
  problem.interchangeable_ranks = 3;
  problem.sample_begin = {0};
  for (std::int64_t s = 0; s < samples; ++s) {
    double dims[3];
    for (double& dim : dims) dim = static_cast<double>(64 + random.Below(1000));
    const double largest = std::max({dims[0], dims[1], dims[2]});
    for (const double dim : dims) {
      problem.rows.push_back(static_cast<float>(dim));
      problem.targets.push_back(static_cast<float>(1e-3 * (dim + 3 * largest)));
    }
    problem.sample_rows.push_back(s);
    problem.sample_begin.push_back(s + 1);
  }
  return problem;
}

const NeverStop never_stop;

FitContext ContextOf(RecordingObserver& observer, const StopSignal& stop = never_stop) {
  return {&stop, 1, &observer, nullptr};
}

TrainingConfig QuickConfig() {
  TrainingConfig config;
  config.table_hidden = {16, 8};
  config.head_hidden = {8};
  config.comm_hidden = {8};
  config.optimization.max_epochs = 60;
  config.comm_optimization.max_epochs = 60;
  return config;
}

StatusOr<EnsembleFit> TrainSum(const TrainingProblem& problem, const SampleSplit& split,
                               const TrainingConfig& config, const FitContext& context) {
  return FitEnsemble(PaperTask(NetworkKind::kTableSum, problem, split, config), context);
}

StatusOr<EnsembleFit> TrainAllToAll(const TrainingProblem& problem, const SampleSplit& split,
                                    const TrainingConfig& config, const FitContext& context) {
  return FitEnsemble(PaperTask(NetworkKind::kDeviceCount, problem, split, config), context);
}

std::vector<double> Predicted(const EnsembleFit& fit, const std::vector<std::int64_t>& ids) {
  return PredictCosts(fit.problem, fit.network, fit.members.front(), ids);
}

std::vector<double> MeasuredCosts(const TrainingProblem& problem,
                                  const std::vector<std::int64_t>& ids) {
  std::vector<double> measured;
  for (const auto s : ids) {
    for (int o = 0; o < problem.outputs; ++o) {
      measured.push_back(problem.targets[s * problem.outputs + o]);
    }
  }
  return measured;
}

TEST(NetworkTrainerTest, LearnsASumOverTables) {
  const TrainingProblem problem = SumProblem(1500, 1);
  const SampleSplit split = SplitSamples(1500, 5);
  for (const TrainingLoss loss : {TrainingLoss::kMse, TrainingLoss::kRelative}) {
    RecordingObserver observer;
    TrainingConfig config = QuickConfig();
    config.table_hidden = {128, 32};
    config.head_hidden = {64};
    config.optimization.loss = loss;
    const auto result = TrainSum(problem, split, config, ContextOf(observer));
    ASSERT_TRUE(result.ok()) << result.status();
    const RegressionMetrics metrics =
        MeasureRegression(Predicted(*result, split.test), MeasuredCosts(problem, split.test));
    EXPECT_GT(metrics.kendall_tau, 0.95) << ToText(loss);
    EXPECT_GT(metrics.r2, 0.98) << ToText(loss);
    EXPECT_LT(metrics.mape_percent, 8) << ToText(loss);
    EXPECT_EQ(observer.epochs.size(), static_cast<std::size_t>(result->epochs));
  }
}

TEST(NetworkTrainerTest, LearnsAnAllToAll) {
  const TrainingProblem problem = CommProblem(600);
  const SampleSplit split = SplitSamples(600, 5);
  RecordingObserver observer;
  TrainingConfig config = QuickConfig();
  config.comm_hidden = {128, 64, 32, 16};
  const auto result = TrainAllToAll(problem, split, config, ContextOf(observer));
  ASSERT_TRUE(result.ok()) << result.status();
  const RegressionMetrics metrics =
      MeasureRegression(Predicted(*result, split.test), MeasuredCosts(problem, split.test));
  EXPECT_GT(metrics.r2, 0.97);
}

TEST(NetworkTrainerTest, SameSeedSameNetworkOtherSeedAnother) {
  const TrainingProblem problem = SumProblem(200, 1);
  const SampleSplit split = SplitSamples(200, 5);
  TrainingConfig config = QuickConfig();
  config.optimization.max_epochs = 5;
  RecordingObserver observer;
  const auto train = [&] {
    return TrainSum(problem, split, config, ContextOf(observer))->members.front();
  };
  const std::vector<float> first = train();
  EXPECT_EQ(train(), first);
  config.optimization.seed = 1;
  EXPECT_NE(train(), first);
}

TEST(NetworkTrainerTest, IgnoresAConstantFeatureWhateverItsLaterValue) {
  TrainingProblem problem = SumProblem(200, 1);
  const SampleSplit split = SplitSamples(200, 5);
  TrainingConfig config = QuickConfig();
  config.optimization.max_epochs = 3;
  RecordingObserver observer;
  const auto result = TrainSum(problem, split, config, ContextOf(observer));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(observer.warnings.size(), 1u);
  EXPECT_THAT(observer.warnings[0], HasSubstr("constant"));
  const TensorFile file = result->File();
  EXPECT_EQ(file.tensors.at("feature_std").values[3], 1);
  const std::vector<float>& first = file.tensors.at("table.0.weight").values;
  for (std::size_t at = 3; at < first.size(); at += 4) EXPECT_EQ(first[at], 0);
}

TEST(NetworkTrainerTest, OnlyRanksThatAreInterchangeableArePermuted) {
  TrainingProblem problem = CommProblem(60);
  const SampleSplit split = SplitSamples(60, 5);
  RecordingObserver observer;
  TrainingConfig config = QuickConfig();
  config.comm_optimization.max_epochs = 3;
  const auto train = [&] {
    return TrainAllToAll(problem, split, config, ContextOf(observer))->members.front();
  };
  const std::vector<float> permuted = train();
  config.comm_optimization.permute_ranks = false;
  const std::vector<float> as_they_are = train();
  EXPECT_NE(permuted, as_they_are);
  config.comm_optimization.permute_ranks = true;
  problem.interchangeable_ranks = 0;
  EXPECT_EQ(train(), as_they_are);
}

TEST(NetworkTrainerTest, StopsEarlyAndKeepsTheBestEpoch) {
  const TrainingProblem problem = SumProblem(60, 1);
  const SampleSplit split = SplitSamples(60, 5);
  TrainingConfig config = QuickConfig();
  config.optimization.learning_rate = 0.05;
  config.optimization.max_epochs = 500;
  config.optimization.patience_epochs = 10;
  RecordingObserver observer;
  const auto result = TrainSum(problem, split, config, ContextOf(observer));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(result->epochs, 500);
  EXPECT_EQ(result->epochs, result->best_epoch + 10);
  EXPECT_THAT(observer.reason, HasSubstr("stopped early"));
  const double best =
      observer.epochs.at(static_cast<std::size_t>(result->best_epoch - 1)).validation_loss;
  for (const EpochReport& epoch : observer.epochs) {
    EXPECT_GE(epoch.validation_loss, best);
  }
}

TEST(NetworkTrainerTest, ALossThatIsNotFiniteIsAnError) {
  TrainingProblem problem = SumProblem(60, 1);
  problem.targets[0] = std::numeric_limits<float>::quiet_NaN();
  RecordingObserver observer;
  SampleSplit split = SplitSamples(60, 5);
  split.train.push_back(0);
  const auto result = TrainSum(problem, split, QuickConfig(), ContextOf(observer));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(result.status()), HasSubstr("not finite in epoch 1"));
}

TEST(NetworkTrainerTest, CanBeInterrupted) {
  const TrainingProblem problem = SumProblem(60, 1);
  ManualStop stop;
  stop.Stop();
  RecordingObserver observer;
  const auto result =
      TrainSum(problem, SplitSamples(60, 5), QuickConfig(), ContextOf(observer, stop));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
}

TEST(SplitSamplesTest, PartsCoverEverySampleOnce) {
  for (const std::int64_t n : {0, 1, 2, 3, 20, 1003}) {
    const SampleSplit split = SplitSamples(n, 9);
    std::vector<int> seen(n, 0);
    for (const auto* part : {&split.train, &split.validation, &split.test}) {
      for (const auto s : *part) ++seen[s];
    }
    EXPECT_EQ(seen, std::vector<int>(n, 1));
    if (n >= 3) {
      EXPECT_EQ(split.test.size(), split.validation.size());
      EXPECT_GE(split.train.size(), 1u);
    }
  }
}

}  // namespace
}  // namespace neuroshard
