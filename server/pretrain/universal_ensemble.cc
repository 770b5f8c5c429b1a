#include "server/pretrain/universal_ensemble.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "server/pretrain/fit/graph_prediction.h"

namespace neuroshard {
namespace {

// So that a run over very many samples stays in minutes: epochs fall as samples rise beyond this
// many sample visits, but not below the least number of epochs.
constexpr std::int64_t kSampleVisits = 10'000'000;
constexpr std::int64_t kLeastEpochs = 60;

// And so that a small store is not learned from in a few steps: an epoch has about this many,
// unless batches would be smaller than the least.
constexpr std::int64_t kStepsPerEpoch = 40;
constexpr std::int64_t kLeastBatch = 8;

OptimizationConfig ForSamples(OptimizationConfig config, std::size_t samples) {
  const auto count = static_cast<std::int64_t>(samples);
  const std::int64_t affordable = kSampleVisits / std::max<std::int64_t>(1, count);
  config.max_epochs = std::min(config.max_epochs, std::max(kLeastEpochs, affordable));
  config.batch_samples =
      std::min(config.batch_samples, std::max(kLeastBatch, count / kStepsPerEpoch));
  return config;
}

// The old model's standardisation; columns that it had never seen vary get that of the new samples,
// which changes nothing as long as their weights are 0.
Standardisation Continued(const TensorFile& file, const std::string& first_weight,
                          const Standardisation& fresh) {
  Standardisation result;
  result.mean = file.tensors.at("feature_mean").values;
  result.deviation = file.tensors.at("feature_std").values;
  const std::vector<float>& weight = file.tensors.at(first_weight).values;
  const std::size_t columns = result.mean.size();
  for (std::size_t c = 0; c < columns; ++c) {
    bool ignored = true;
    for (std::size_t at = c; at < weight.size(); at += columns)
      ignored = ignored && weight[at] == 0;
    if (!ignored) continue;
    result.mean[c] = fresh.mean[c];
    result.deviation[c] = fresh.deviation[c];
  }
  return result;
}

StatusOr<std::vector<MemberState>> FitMembers(const EnsembleTask& task,
                                              const std::vector<SampleSplit>& member_splits,
                                              const FitContext& context) {
  const OptimizationConfig config = ForSamples(task.config, task.split->train.size());
  const NetworkGraph& graph = *task.graph;
  FitTask fit;
  fit.name = task.name;
  fit.problem = &task.problem->fit;
  fit.split = task.split;
  fit.member_splits = member_splits;
  fit.graph = &graph;
  fit.config = &config;
  fit.members = static_cast<int>(task.members);
  for (std::int64_t m = 0; m < task.members; ++m) {
    Random random(config.seed + static_cast<std::uint64_t>(m));
    const auto start = static_cast<std::size_t>(m) % std::max<std::size_t>(1, task.starts.size());
    fit.initial_parameters.push_back(task.starts.empty() ? task.fresh(graph, random)
                                                         : graph.ToParameters(task.starts[start]));
  }
  return RunFit(fit, context);
}

// As they are used.
std::vector<std::vector<float>> WeightsOf(const std::vector<MemberState>& states,
                                          const NetworkGraph& graph) {
  std::vector<std::vector<float>> weights;
  for (const MemberState& state : states) {
    weights.emplace_back(graph.num_parameters());
    graph.ToWeights(state.best_parameters, weights.back());
  }
  return weights;
}

}  // namespace

StatusOr<FittedEnsemble> FitEnsemble(const EnsembleTask& task, const FitContext& context) {
  NS_ASSIGN_OR_RETURN(std::vector<MemberState> states, FitMembers(task, {}, context));
  std::stable_sort(states.begin(), states.end(), [](const MemberState& a, const MemberState& b) {
    return a.best_validation_loss < b.best_validation_loss;
  });
  FittedEnsemble ensemble;
  ensemble.epochs = states.front().epoch;
  ensemble.best_epoch = states.front().best_epoch;
  ensemble.weights = WeightsOf(states, *task.graph);
  return ensemble;
}

StatusOr<std::vector<std::vector<float>>> FitOneToEach(EnsembleTask task,
                                                       const std::vector<SampleSplit>& splits,
                                                       const FitContext& context) {
  task.split = &splits.front();
  task.members = std::ssize(splits);
  NS_ASSIGN_OR_RETURN(const std::vector<MemberState> states, FitMembers(task, splits, context));
  return WeightsOf(states, *task.graph);
}

EnsemblePredictions PredictEnsemble(const UniversalProblem& problem, const NetworkGraph& graph,
                                    const std::vector<std::vector<float>>& members,
                                    const std::vector<std::int64_t>& samples) {
  EnsemblePredictions predictions;
  predictions.members_ms.resize(samples.size());
  const auto outputs = static_cast<std::size_t>(problem.fit.outputs);
  for (const auto& weights : members) {
    const auto values = PredictOutputs(problem.fit, graph, weights, samples);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * outputs);
      predictions.members_ms[i].push_back(
          problem.unit_ms *
          std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(outputs), 0.0));
    }
  }
  for (const std::int64_t sample : samples) {
    const auto begin =
        problem.fit.targets.begin() + static_cast<std::ptrdiff_t>(sample * problem.fit.outputs);
    predictions.measured_ms.push_back(
        problem.unit_ms *
        std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(outputs), 0.0));
  }
  return predictions;
}

NetworkReport ReportOn(std::string name, std::string key, const EnsemblePredictions& predictions,
                       const std::optional<IntervalManifest>& interval, std::int64_t samples,
                       const std::vector<int>& num_ranks) {
  NetworkReport report;
  report.name = std::move(name);
  report.key = std::move(key);
  report.predicted_ms = predictions.Model();
  report.measured_ms = predictions.measured_ms;
  report.held_out = MeasureRegression(report.predicted_ms, report.measured_ms);
  report.held_out.samples = samples;
  if (interval && samples > 0)
    report.coverage = IntervalCoverage(*interval, predictions, num_ranks);
  return report;
}

NetworkReport ReportBefore(const NetworkReport& now, const EnsemblePredictions& before) {
  NetworkReport report = ReportOn(now.name + ", before", now.key + ".before", before, std::nullopt,
                                  now.held_out.samples);
  report.is_part = true;
  return report;
}

void StandardiseProblem(const std::string& name, const std::vector<std::int64_t>& train,
                        const TensorFile* start, const std::string& first_weight,
                        UniversalProblem& problem, TrainingObserver* observer) {
  if (start == nullptr) {
    problem.Standardise(train, nullptr);
  } else {
    UniversalProblem fresh = problem;
    fresh.Standardise(train, nullptr);
    const Standardisation continued = Continued(*start, first_weight, fresh.standardisation);
    problem.Standardise(train, &continued);
  }
  const std::string constant = problem.standardisation.Constant(problem.feature_names);
  if (constant.empty() || observer == nullptr) return;
  observer->OnWarning(fmt::format(
      "{}: the same value in every training sample, so the network ignores: {}", name, constant));
}

StatusOr<std::vector<std::vector<float>>> StartWeights(
    int members, const std::string& name, const std::function<std::vector<float>(int)>& read) {
  std::vector<std::vector<float>> starts;
  for (int m = 0; m < members; ++m) {
    starts.push_back(read(m));
    if (starts.back().empty()) {
      return FailedPrecondition(
          "{}: the model to go on from has other layers than the configuration", name);
    }
  }
  return starts;
}

void AddStandardisation(const Standardisation& standardisation, TensorFile& file) {
  const auto columns = static_cast<std::int64_t>(standardisation.mean.size());
  file.tensors["feature_mean"] = {{columns}, standardisation.mean};
  file.tensors["feature_std"] = {{columns}, standardisation.FileDeviation()};
}

std::vector<std::int64_t> LayersOf(std::int64_t first, const std::vector<int>& hidden,
                                   std::int64_t last) {
  std::vector<std::int64_t> widths = {first};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(last);
  return widths;
}

}  // namespace neuroshard
