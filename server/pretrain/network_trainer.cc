#include "server/pretrain/network_trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/pretrain/fit/blas_threads.h"
#include "server/pretrain/standardisation.h"

namespace neuroshard {
namespace {

// Costs below this share of the mean cost are not held to a smaller relative error than it: a timer
// resolves them no better.
constexpr double kRelativeFloor = 0.01;
constexpr double kSmallestUnit = 1e-9;

Standardisation Standardise(const TrainingProblem& problem, const SampleSplit& split,
                            TrainingObserver* observer) {
  std::vector<char> used(problem.num_rows(), 0);
  for (const auto s : split.train) {
    for (auto i = problem.sample_begin[s]; i < problem.sample_begin[s + 1]; ++i) {
      used[problem.sample_rows[i]] = 1;
    }
  }
  Standardisation result = MeasureColumns(problem.rows, problem.num_columns(), used);
  if (const std::string constant = result.Constant(problem.columns); !constant.empty()) {
    observer->OnWarning(
        fmt::format("{}: the same value in every training sample, so the network ignores: {}",
                    problem.name, constant));
  }
  return result;
}

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

// What the squared error of each target counts, the total of a sample's targets last if it counts.
std::vector<float> TargetWeights(const TrainingProblem& problem, const SampleSplit& split,
                                 TrainingLoss loss) {
  const auto outputs = static_cast<std::size_t>(problem.outputs);
  const std::size_t columns = outputs + (problem.total_counts ? 1 : 0);
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

FitProblem MakeFitProblem(const TrainingProblem& problem, const SampleSplit& split,
                          const OptimizationConfig& config,
                          const Standardisation& standardisation) {
  FitProblem fit;
  fit.row_columns = problem.num_columns();
  fit.rows = standardisation.Apply(problem.rows);
  fit.sample_begin = problem.sample_begin;
  fit.sample_rows = problem.sample_rows;
  fit.outputs = problem.outputs;
  fit.total_counts = problem.total_counts;
  fit.targets = problem.targets;
  fit.weights = TargetWeights(problem, split, config.loss);
  fit.scale.assign(static_cast<std::size_t>(problem.outputs), 1.0f);
  if (config.scale_targets) {
    const auto means =
        ColumnMeans(problem.targets, static_cast<std::size_t>(problem.outputs), split.train);
    for (std::size_t o = 0; o < means.size(); ++o) {
      fit.scale[o] = static_cast<float>(std::max(means[o], kSmallestUnit));
    }
  }
  if (config.permute_ranks) fit.permuted_ranks = problem.interchangeable_ranks;
  return fit;
}

NetworkGraph MakeGraph(const TrainingProblem& problem, const NetworkShape& shape) {
  NetworkGraph graph;
  int step = graph.AddRowInput(problem.num_columns());
  for (const int width : shape.row_hidden) step = graph.AddLinear(step, width, {Activation::kRelu});
  // A sample without row layers is exactly one row, whose sum is itself.
  step = graph.AddSum(step);
  for (const int width : shape.head_hidden)
    step = graph.AddLinear(step, width, {Activation::kRelu});
  graph.AddLinear(step, problem.outputs);
  return graph;
}

TrainedNetwork Extract(const NetworkGraph& graph, const std::vector<float>& parameters,
                       const Standardisation& standardisation, const std::vector<float>& scale) {
  TrainedNetwork network{standardisation.mean, standardisation.deviation, {}, {}};
  for (const GraphStep& step : graph.steps()) {
    if (step.kind != GraphStepKind::kLinear) continue;
    const std::int64_t inputs = graph.steps()[static_cast<std::size_t>(step.input)].width;
    const auto at = [&](std::size_t offset) {
      return parameters.begin() + static_cast<std::ptrdiff_t>(offset);
    };
    LinearLayer layer{inputs,
                      step.width,
                      {at(step.weight), at(step.bias)},
                      {at(step.bias), at(step.bias) + step.width}};
    (step.level == GraphLevel::kRow ? network.row_layers : network.head_layers)
        .push_back(std::move(layer));
  }
  LinearLayer& first =
      network.row_layers.empty() ? network.head_layers.front() : network.row_layers.front();
  for (std::size_t c = 0; c < network.feature_std.size(); ++c) {
    if (network.feature_std[c] > 0) continue;
    network.feature_std[c] = 1;
    for (std::size_t o = 0; o < first.bias.size(); ++o) {
      first.weight[o * network.feature_std.size() + c] = 0;
    }
  }
  LinearLayer& last = network.head_layers.back();
  const std::size_t inputs = static_cast<std::size_t>(last.inputs);
  for (std::size_t o = 0; o < last.bias.size(); ++o) {
    last.bias[o] *= scale[o];
    for (std::size_t i = 0; i < inputs; ++i) last.weight[o * inputs + i] *= scale[o];
  }
  return network;
}

}  // namespace

StatusOr<TrainingResult> TrainNetwork(const TrainingProblem& problem, const SampleSplit& split,
                                      const NetworkShape& shape, const OptimizationConfig& config,
                                      const FitContext& context) {
  if (split.train.size() < 2 || split.validation.empty()) {
    return InvalidArgument("{}: {} training and {} validation samples are too few to learn from",
                           problem.name, split.train.size(), split.validation.size());
  }
  UseOneBlasThread();
  const Standardisation standardisation = Standardise(problem, split, context.observer);
  const FitProblem fit_problem = MakeFitProblem(problem, split, config, standardisation);
  const NetworkGraph graph = MakeGraph(problem, shape);
  NS_ASSIGN_OR_RETURN(
      const std::vector<MemberState> members,
      RunFit({problem.name, &fit_problem, &split, &graph, &config, 1, {}}, context));
  const MemberState& member = members.front();
  return TrainingResult{Extract(graph, member.best_parameters, standardisation, fit_problem.scale),
                        member.epoch, member.best_epoch, member.best_validation_loss};
}

}  // namespace neuroshard
