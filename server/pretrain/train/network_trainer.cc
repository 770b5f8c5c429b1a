#include "server/pretrain/train/network_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace neuroshard {
namespace {

// Costs below this share of the mean cost are not held to a smaller relative error than it: a timer
// resolves them no better.
constexpr double kRelativeFloor = 0.01;
constexpr double kSmallestUnit = 1e-9;

// Mean of each of `columns` columns of `values` over `samples`.
std::vector<double> ColumnMeans(const std::vector<float>& values, std::size_t columns,
                                const std::vector<std::int64_t>& samples) {
  std::vector<double> means(columns, 0);
  for (const std::int64_t sample : samples) {
    for (std::size_t c = 0; c < columns; ++c) {
      means[c] += values[static_cast<std::size_t>(sample) * columns + c];
    }
  }
  for (double& mean : means) mean /= static_cast<double>(samples.size());
  return means;
}

// Of the squared error of each target, the total of a sample's targets last if it counts.
std::vector<float> TargetWeights(const TrainingProblem& problem, const SampleSplit& split,
                                 TrainingLoss loss) {
  const auto outputs = static_cast<std::size_t>(problem.outputs);
  const auto columns = static_cast<std::size_t>(problem.weight_columns());
  std::vector<float> all;
  for (std::size_t s = 0; s < static_cast<std::size_t>(problem.num_samples()); ++s) {
    double total = 0;
    for (std::size_t o = 0; o < outputs; ++o) {
      all.push_back(problem.targets[s * outputs + o]);
      total += all.back();
    }
    if (problem.total_counts) all.push_back(static_cast<float>(total));
  }
  if (loss == TrainingLoss::kMse) return std::vector<float>(all.size(), 1.0f);
  const std::vector<double> means = ColumnMeans(all, columns, split.train);
  for (std::size_t at = 0; at < all.size(); ++at) {
    const double floor = std::max(means[at % columns] * kRelativeFloor, kSmallestUnit);
    const double unit = std::max(static_cast<double>(all[at]), floor);
    all[at] = std::isfinite(all[at]) ? static_cast<float>(1 / (unit * unit)) : all[at];
  }
  return all;
}

std::vector<double> TargetScale(const TrainingProblem& problem, const SampleSplit& split,
                                const OptimizationConfig& config) {
  const auto outputs = static_cast<std::size_t>(problem.outputs);
  if (!config.scale_targets) return std::vector<double>(outputs, 1);
  std::vector<double> means = ColumnMeans(problem.targets, outputs, split.train);
  for (double& mean : means) mean = std::max(mean, kSmallestUnit);
  return means;
}

}  // namespace

StatusOr<EnsembleFit> TrainNetwork(TrainingProblem problem, NetworkDefinition network,
                                   const SampleSplit& split, const OptimizationConfig& config,
                                   const FitContext& context) {
  if (split.train.size() < 2 || split.validation.empty()) {
    return InvalidArgument("{}: {} training and {} validation samples are too few to learn from",
                           problem.name, split.train.size(), split.validation.size());
  }
  problem.weights = TargetWeights(problem, split, config.loss);
  problem.scale = TargetScale(problem, split, config);
  return FitEnsemble(std::move(problem), std::move(network), split, {.config = config}, context);
}

}  // namespace neuroshard
