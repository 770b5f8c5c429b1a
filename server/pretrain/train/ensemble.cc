#include "server/pretrain/train/ensemble.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "server/pretrain/fit/cost_prediction.h"

namespace neuroshard {
namespace {

// So that a run over very many samples stays in minutes: epochs fall as samples rise beyond this
// many sample visits, but not below the least number of epochs.
constexpr std::int64_t kSampleVisits = 10'000'000;
constexpr std::int64_t kMinEpochs = 60;

// And so that a small store is not learned from in a few steps: an epoch has about this many,
// unless batches would be smaller than the least.
constexpr std::int64_t kStepsPerEpoch = 40;
constexpr std::int64_t kMinBatch = 8;

std::string MemberPrefix(std::size_t member) { return fmt::format("member.{}.", member); }

// The old model's standardisation; columns that it has never seen vary get that of the new samples,
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

void StandardiseProblem(const SampleSplit& split, const NetworkDefinition& network,
                        const EnsembleOptions& options, TrainingProblem& problem,
                        TrainingObserver& observer) {
  if (options.start == nullptr) {
    problem.Standardise(split.train);
  } else {
    TrainingProblem fresh = problem;
    fresh.Standardise(split.train);
    const Standardisation continued = Continued(
        *options.start, MemberPrefix(0) + network.tensors.front().name, fresh.standardisation);
    problem.Standardise(split.train, &continued);
  }
  if (options.purpose == FitPurpose::kModel) WarnOfConstantColumns(problem, observer);
}

StatusOr<std::vector<std::vector<float>>> ReadStarts(const TrainingProblem& problem,
                                                     const NetworkDefinition& network,
                                                     const EnsembleOptions& options) {
  std::vector<std::vector<float>> starts;
  for (int m = 0; m < options.start_members; ++m) {
    starts.push_back(ReadNetwork(network, *options.start, MemberPrefix(m), problem.scale));
    if (starts.back().empty()) {
      return FailedPrecondition(
          "{}: the model to go on from has other layers than the configuration", problem.name);
    }
  }
  return starts;
}

// A member for each split.
StatusOr<std::vector<MemberState>> FitMembers(const std::string& name, const EnsembleFit& ensemble,
                                              const OptimizationConfig& config,
                                              const std::vector<const SampleSplit*>& splits,
                                              const FitContext& context) {
  FitTask fit{name, &ensemble.problem, &ensemble.network, &config, splits, {}};
  for (std::size_t m = 0; m < splits.size(); ++m) {
    Random random(config.seed + m);
    const auto& starts = ensemble.starts;
    fit.initial_parameters.push_back(
        starts.empty() ? InitialParameters(ensemble.network, random)
                       : ParametersOf(ensemble.network, starts[m % starts.size()]));
  }
  return RunFit(fit, context);
}

std::vector<std::vector<float>> BestWeights(const std::vector<MemberState>& states,
                                            const NetworkDefinition& network) {
  std::vector<std::vector<float>> weights;
  for (const MemberState& state : states) {
    weights.push_back(WeightsOf(network, state.best_parameters));
  }
  return weights;
}

}  // namespace

OptimizationConfig ConfigForSamples(OptimizationConfig config, std::size_t samples) {
  const auto count = static_cast<std::int64_t>(samples);
  const std::int64_t affordable = kSampleVisits / std::max<std::int64_t>(1, count);
  config.max_epochs = std::min(config.max_epochs, std::max(kMinEpochs, affordable));
  config.batch_samples =
      std::min(config.batch_samples, std::max(kMinBatch, count / kStepsPerEpoch));
  return config;
}

EnsemblePredictions EnsembleFit::Predict(const std::vector<std::int64_t>& samples) const {
  return PredictEnsemble(problem, network, members, samples);
}

EnsemblePredictions EnsembleFit::PredictBefore(const std::vector<std::int64_t>& samples) const {
  return PredictEnsemble(problem, network, starts, samples);
}

TensorFile EnsembleFit::File() const {
  TensorFile file = problem.standardisation.File();
  for (std::size_t m = 0; m < members.size(); ++m) {
    AddNetwork(network, members[m], problem.scale, problem.standardisation, MemberPrefix(m), file);
  }
  return file;
}

StatusOr<EnsembleFit> FitEnsemble(TrainingProblem problem, NetworkDefinition network,
                                  const SampleSplit& split, const EnsembleOptions& options,
                                  const FitContext& context) {
  EnsembleFit fit;
  NS_ASSIGN_OR_RETURN(fit.starts, ReadStarts(problem, network, options));
  StandardiseProblem(split, network, options, problem, *context.observer);
  fit.problem = std::move(problem);
  fit.network = std::move(network);
  const std::vector<const SampleSplit*> splits(static_cast<std::size_t>(options.members), &split);
  NS_ASSIGN_OR_RETURN(std::vector<MemberState> states,
                      FitMembers(fit.problem.name, fit, options.config, splits, context));
  std::stable_sort(states.begin(), states.end(), [](const MemberState& a, const MemberState& b) {
    return a.best_validation_loss < b.best_validation_loss;
  });
  fit.epochs = states.front().epoch;
  fit.best_epoch = states.front().best_epoch;
  fit.members = BestWeights(states, fit.network);
  return fit;
}

StatusOr<std::vector<std::vector<float>>> FitOneToEach(const std::string& name,
                                                       const EnsembleFit& ensemble,
                                                       const OptimizationConfig& config,
                                                       const std::vector<SampleSplit>& splits,
                                                       const FitContext& context) {
  std::vector<const SampleSplit*> each;
  for (const SampleSplit& split : splits) each.push_back(&split);
  NS_ASSIGN_OR_RETURN(const std::vector<MemberState> states,
                      FitMembers(name, ensemble, config, each, context));
  return BestWeights(states, ensemble.network);
}

EnsemblePredictions PredictEnsemble(const TrainingProblem& problem,
                                    const NetworkDefinition& network,
                                    const std::vector<std::vector<float>>& members,
                                    const std::vector<std::int64_t>& samples) {
  EnsemblePredictions predictions;
  predictions.members_ms.resize(samples.size());
  const std::ptrdiff_t outputs = problem.outputs;
  for (const auto& weights : members) {
    const auto costs = PredictCosts(problem, network, weights, samples);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto begin = costs.begin() + static_cast<std::ptrdiff_t>(i) * outputs;
      predictions.members_ms[i].push_back(std::accumulate(begin, begin + outputs, 0.0));
    }
  }
  for (const std::int64_t sample : samples) {
    const auto begin = problem.targets.begin() + sample * outputs;
    predictions.measured_ms.push_back(std::accumulate(begin, begin + outputs, 0.0));
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

}  // namespace neuroshard
