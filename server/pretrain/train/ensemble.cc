#include "server/pretrain/train/ensemble.h"

#include <algorithm>
#include <utility>

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

// The training records are divided by these; all of them follow.
constexpr std::int64_t kLearningCurveDivisors[] = {8, 4, 2};

// The prefix of the names of a member's tensors; the paper's networks have none.
std::string MemberPrefix(const NetworkDefinition& network, std::size_t member) {
  const bool several = network.kind == NetworkKind::kUniversalTableSum ||
                       network.kind == NetworkKind::kUniversalComm;
  return several ? fmt::format("member.{}.", member) : "";
}

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
    const Standardisation continued =
        Continued(*options.start, MemberPrefix(network, 0) + network.tensors.front().name,
                  fresh.standardisation);
    problem.Standardise(split.train, &continued);
  }
  const std::string constant = problem.standardisation.Constant(problem.columns);
  if (options.purpose != FitPurpose::kModel || constant.empty()) return;
  observer.OnWarning(
      fmt::format("{}: the same value in every training sample, so the network ignores: {}",
                  problem.name, constant));
}

StatusOr<std::vector<std::vector<float>>> ReadStarts(const TrainingProblem& problem,
                                                     const NetworkDefinition& network,
                                                     const EnsembleOptions& options) {
  std::vector<std::vector<float>> starts;
  for (int m = 0; m < options.start_members; ++m) {
    starts.push_back(ReadNetwork(network, *options.start, MemberPrefix(network, m), problem.scale));
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

// One in `divisor` of `train`, at random by seed, ascending; a larger share has all of a smaller.
std::vector<std::int64_t> ShareOfTraining(std::vector<std::int64_t> train, std::int64_t divisor,
                                          std::uint64_t seed) {
  Random(seed).Shuffle(train);
  train.resize(train.size() / static_cast<std::size_t>(divisor));
  std::ranges::sort(train);
  return train;
}

std::int64_t Counted(const HeldOutPart& part, const std::vector<std::int64_t>& records) {
  if (!part.counts) return std::ssize(records);
  return std::ranges::count_if(records, part.counts);
}

std::vector<std::vector<float>> BestWeights(const std::vector<MemberState>& states,
                                            const NetworkDefinition& network) {
  return Mapped(
      states, [&](const MemberState& state) { return WeightsOf(network, state.best_parameters); });
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

EnsemblePredictions EnsembleFit::Predict(const std::vector<std::int64_t>& records) const {
  return PredictBy(members, records);
}

EnsemblePredictions EnsembleFit::PredictBy(const std::vector<std::vector<float>>& weights,
                                           const std::vector<std::int64_t>& records) const {
  const std::vector<std::int64_t> samples = ranks ? ranks->RanksOf(records) : records;
  const auto outputs = static_cast<std::size_t>(problem.outputs);
  const std::size_t values = problem.total_counts ? 1 : outputs;
  EnsemblePredictions predictions;
  predictions.members_ms.resize(samples.size() * values);
  predictions.measured_ms.resize(samples.size() * values);
  for (const std::vector<float>& of_member : weights) {
    const auto costs = PredictCosts(problem, network, of_member, samples);
    for (std::vector<double>& by_member : predictions.members_ms) by_member.push_back(0);
    for (std::size_t at = 0; at < costs.size(); ++at) {
      predictions.members_ms[at * values / outputs].back() += std::max(0.0, costs[at]);
    }
  }
  for (std::size_t at = 0; at < samples.size() * outputs; ++at) {
    const std::size_t target = static_cast<std::size_t>(samples[at / outputs]) * outputs;
    predictions.measured_ms[at * values / outputs] += problem.targets[target + at % outputs];
  }
  return predictions;
}

TensorFile EnsembleFit::File() const {
  TensorFile file = problem.standardisation.File();
  for (std::size_t m = 0; m < members.size(); ++m) {
    AddNetwork(network, members[m], problem.scale, problem.standardisation,
               MemberPrefix(network, m), file);
  }
  return file;
}

StatusOr<EnsembleFit> FitEnsemble(TrainingProblem problem, NetworkDefinition network,
                                  const SampleSplit& split, const EnsembleOptions& options,
                                  const FitContext& context) {
  EnsembleFit fit;
  fit.ranks = options.ranks;
  NS_ASSIGN_OR_RETURN(fit.starts, ReadStarts(problem, network, options));
  StandardiseProblem(split, network, options, problem, *context.observer);
  fit.problem = std::move(problem);
  fit.network = std::move(network);
  const std::vector<const SampleSplit*> splits(static_cast<std::size_t>(options.members), &split);
  NS_ASSIGN_OR_RETURN(std::vector<MemberState> states,
                      FitMembers(fit.problem.name, fit, options.config, splits, context));
  std::ranges::stable_sort(states, {}, &MemberState::best_validation_loss);
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

NetworkReport ReportOn(std::string name, std::string key, const EnsemblePredictions& said) {
  NetworkReport report;
  report.name = std::move(name);
  report.key = std::move(key);
  report.predicted_ms = said.Model();
  report.measured_ms = said.measured_ms;
  report.held_out = MeasureRegression(report.predicted_ms, report.measured_ms);
  return report;
}

void AddReports(const EnsembleFit& fit, const SampleSplit& by_record,
                const std::vector<HeldOutPart>& parts, TrainingOutcome& outcome) {
  for (const HeldOutPart& part : parts) {
    const EnsemblePredictions said = fit.Predict(part.records);
    NetworkReport result = ReportOn(part.name, part.key, said);
    result.held_out.samples = std::ssize(part.records);
    if (part.interval != nullptr && !part.records.empty()) {
      result.coverage = IntervalCoverage(
          *part.interval, said, fit.ranks ? fit.ranks->CountsOf(part.records) : std::vector<int>());
    }
    result.train_samples = Counted(part, by_record.train);
    result.validation_samples = Counted(part, by_record.validation);
    result.epochs = fit.epochs;
    result.best_epoch = fit.best_epoch;
    result.is_part = part.is_part;
    outcome.reports.push_back(std::move(result));
    if (fit.starts.empty() || !part.reports_start) continue;
    outcome.reports.push_back(ReportOn(part.name + ", before", part.key + ".before",
                                       fit.PredictBy(fit.starts, part.records)));
    outcome.reports.back().held_out.samples = std::ssize(part.records);
    outcome.reports.back().is_part = true;
  }
}

Status AddLearningCurves(const EnsembleFit& whole, const SampleSplit& by_record,
                         const TrainingConfig& config, const std::vector<HeldOutPart>& parts,
                         const FitTo& fit_to, TrainingOutcome& outcome) {
  if (!config.learning_curve) return absl::OkStatus();
  std::vector<LearningCurve> curves;
  const auto add_points = [&](const EnsembleFit& fit, const std::vector<std::int64_t>& train) {
    std::size_t curve = 0;
    for (const HeldOutPart& part : parts) {
      if (part.is_part || part.records.empty()) continue;
      if (curve == curves.size()) curves.push_back({part.name, {}});
      const auto said = fit.Predict(part.records);
      const RegressionMetrics metrics = MeasureRegression(said.Model(), said.measured_ms);
      curves[curve++].points.push_back(
          {Counted(part, train), metrics.mape_percent, metrics.kendall_tau});
    }
  };
  for (const std::int64_t divisor : kLearningCurveDivisors) {
    SampleSplit share = by_record;
    share.train = ShareOfTraining(std::move(share.train), divisor, config.optimization.seed);
    if (share.train.empty()) continue;
    NS_ASSIGN_OR_RETURN(const EnsembleFit fit,
                        fit_to(fmt::format("{}, learning curve 1/{}", whole.problem.name, divisor),
                               share, FitPurpose::kLearningCurve));
    add_points(fit, share.train);
  }
  add_points(whole, by_record.train);
  outcome.learning_curves.insert(outcome.learning_curves.end(), curves.begin(), curves.end());
  return absl::OkStatus();
}

}  // namespace neuroshard
