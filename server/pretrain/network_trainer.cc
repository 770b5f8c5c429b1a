#include "server/pretrain/network_trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "server/cost/neural/blas_threads.h"
#include "server/pretrain/fit/member_fit.h"

namespace neuroshard {
namespace {

// Costs below this share of the mean cost are not held to a smaller relative error than it: a timer
// resolves them no better.
constexpr double kRelativeFloor = 0.01;
constexpr double kSmallestUnit = 1e-9;

// Mean and standard deviation of every column over the rows that training samples use; a column
// that does not vary has deviation 0.
struct ColumnStatistics {
  std::vector<double> mean;
  std::vector<double> deviation;
};

ColumnStatistics MeasureColumns(const TrainingProblem& problem,
                                const std::vector<std::int64_t>& samples) {
  std::vector<char> used(problem.num_rows(), 0);
  for (const auto s : samples) {
    for (auto i = problem.sample_begin[s]; i < problem.sample_begin[s + 1]; ++i) {
      used[problem.sample_rows[i]] = 1;
    }
  }
  const std::int64_t columns = problem.num_columns();
  const double count = static_cast<double>(std::count(used.begin(), used.end(), 1));
  ColumnStatistics statistics{std::vector<double>(columns, 0), std::vector<double>(columns, 0)};
  for (std::int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    float low = std::numeric_limits<float>::infinity();
    float high = -low;
    for (std::int64_t r = 0; r < problem.num_rows(); ++r) {
      if (!used[r]) continue;
      const float value = problem.rows[r * columns + c];
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const double mean = sum / count;
    statistics.mean[c] = mean;
    if (low == high) continue;
    double squares = 0;
    for (std::int64_t r = 0; r < problem.num_rows(); ++r) {
      if (!used[r]) continue;
      const double difference = problem.rows[r * columns + c] - mean;
      squares += difference * difference;
    }
    statistics.deviation[c] = std::sqrt(squares / (count - 1));
  }
  return statistics;
}

// How features reach the network: (x - mean) / deviation; a column that does not vary is ignored.
struct Standardisation {
  std::vector<float> mean;
  std::vector<float> deviation;  // 0: does not vary
};

Standardisation Standardise(const TrainingProblem& problem, const SampleSplit& split,
                            TrainingObserver* observer) {
  const ColumnStatistics statistics = MeasureColumns(problem, split.train);
  Standardisation result;
  std::string constant;
  for (std::size_t c = 0; c < problem.columns.size(); ++c) {
    result.mean.push_back(static_cast<float>(statistics.mean[c]));
    const bool varies = statistics.deviation[c] > 0;
    result.deviation.push_back(varies ? static_cast<float>(statistics.deviation[c] + 1e-6) : 0.0f);
    if (!varies) constant += (constant.empty() ? "" : ", ") + problem.columns[c];
  }
  if (!constant.empty()) {
    observer->OnWarning(
        fmt::format("{}: the same value in every training sample, so the network ignores: {}",
                    problem.name, constant));
  }
  return result;
}

std::vector<float> StandardisedRows(const TrainingProblem& problem,
                                    const Standardisation& standardisation) {
  std::vector<float> rows(problem.rows.size());
  const std::size_t columns = problem.columns.size();
  for (std::size_t at = 0; at < rows.size(); ++at) {
    const float deviation = standardisation.deviation[at % columns];
    if (deviation > 0) {
      rows[at] = (problem.rows[at] - standardisation.mean[at % columns]) / deviation;
    }
  }
  return rows;
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
  fit.rows = StandardisedRows(problem, standardisation);
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
  for (const int width : shape.row_hidden) step = graph.AddLinear(step, width, Activation::kRelu);
  // A sample without row layers is exactly one row, whose sum is itself.
  step = graph.AddSum(step);
  for (const int width : shape.head_hidden) step = graph.AddLinear(step, width, Activation::kRelu);
  graph.AddLinear(step, problem.outputs, Activation::kNone);
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

EpochReport ReportOf(const TrainingProblem& problem, const OptimizationConfig& config,
                     const MemberState& state) {
  return {problem.name,     state.epoch,           config.max_epochs,
          state.train_loss, state.validation_loss, state.best_validation_loss,
          state.best_epoch};
}

}  // namespace

StatusOr<TrainingResult> TrainNetwork(const TrainingProblem& problem, const SampleSplit& split,
                                      const NetworkShape& shape, const OptimizationConfig& config,
                                      const StopSignal& stop, WorkerTeam& team,
                                      TrainingObserver* observer) {
  if (split.train.size() < 2 || split.validation.empty()) {
    return InvalidArgument("{}: {} training and {} validation samples are too few to learn from",
                           problem.name, split.train.size(), split.validation.size());
  }
  UseOneBlasThread();
  const Standardisation standardisation = Standardise(problem, split, observer);
  const FitProblem fit_problem = MakeFitProblem(problem, split, config, standardisation);
  const NetworkGraph graph = MakeGraph(problem, shape);
  MemberFit fit(fit_problem, split, graph, config, config.seed);
  MemberState state = InitialState(graph, config, config.seed);
  std::string reason = "all epochs done";
  while (state.epoch < config.max_epochs) {
    const Status status = fit.RunEpoch(stop, team, state);
    if (!status.ok()) return Annotate(status, problem.name);
    observer->OnEpoch(ReportOf(problem, config, state));
    if (state.epoch - state.best_epoch >= config.patience_epochs) {
      reason = fmt::format("stopped early: no better validation loss for {} epochs",
                           config.patience_epochs);
      break;
    }
  }
  observer->OnFinished(ReportOf(problem, config, state), reason);
  return TrainingResult{Extract(graph, state.best_parameters, standardisation, fit_problem.scale),
                        state.epoch, state.best_epoch, state.best_validation_loss};
}

}  // namespace neuroshard
