#include "server/pretrain/train/ensemble.h"

#include <algorithm>
#include <cmath>
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

// The weights of the squared error of each target, the total of a sample's targets last if it
// counts.
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

// The section of the network that learns the problem.
NetworkManifest SectionOf(NetworkKind kind, const TrainingProblem& problem,
                          const TrainingConfig& config) {
  NetworkManifest network;
  network.kind = kind;
  if (kind == NetworkKind::kDeviceCount) {
    network.num_devices = problem.outputs;
  } else {
    network.features = problem.columns;
  }
  if (network.is_universal()) network.members = static_cast<int>(config.members);
  if (!network.sums_tables()) {
    network.file = "comm.safetensors";
    network.layers = LayersOf(problem.num_columns(), config.comm_hidden, problem.outputs);
    return network;
  }
  network.file = "compute.safetensors";
  if (kind == NetworkKind::kUniversalTableSum) {
    network.cache_bytes = config.cache_bytes;
    network.layers = LayersOf(problem.num_columns(), config.table_hidden, config.representation);
  } else {
    network.transforms = config.transforms;
    network.layers = {problem.num_columns()};
    network.layers.insert(network.layers.end(), config.table_hidden.begin(),
                          config.table_hidden.end());
  }
  network.head_layers = LayersOf(network.layers.back(), config.head_hidden, problem.outputs);
  if (problem.outputs == 2) network.outputs = {"forward_ms", "backward_ms"};
  return network;
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

StatusOr<std::vector<std::vector<float>>> ReadStarts(const NetworkTask& task,
                                                     const TrainingProblem& problem,
                                                     const NetworkDefinition& network) {
  std::vector<std::vector<float>> starts;
  for (int m = 0; m < task.start_members; ++m) {
    starts.push_back(ReadNetwork(network, *task.start, MemberPrefix(task.kind, m), problem.scale));
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

// Adds a report on each part.
void AddReports(const EnsembleFit& fit, const std::vector<HeldOutPart>& parts,
                TrainingOutcome& outcome) {
  for (const HeldOutPart& part : parts) {
    const EnsemblePredictions said = fit.Predict(part.records);
    NetworkReport result = ReportOn(part.name, part.key, said);
    result.held_out.samples = std::ssize(part.records);
    if (part.interval != nullptr && !part.records.empty()) {
      result.coverage = IntervalCoverage(
          *part.interval, said, fit.ranks ? fit.ranks->CountsOf(part.records) : std::vector<int>());
    }
    result.train_samples = Counted(part, fit.by_record.train);
    result.validation_samples = Counted(part, fit.by_record.validation);
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

// Adds the learning curves.
Status AddLearningCurves(const NetworkTask& task, const EnsembleFit& whole,
                         const std::vector<HeldOutPart>& parts, const FitContext& context,
                         TrainingOutcome& outcome) {
  std::vector<LearningCurve> curves;
  const auto add_points = [&](const EnsembleFit& fit) {
    std::size_t curve = 0;
    for (const HeldOutPart& part : parts) {
      if (part.is_part || part.records.empty()) continue;
      if (curve == curves.size()) curves.push_back({part.name, {}});
      const auto said = fit.Predict(part.records);
      const RegressionMetrics metrics = MeasureRegression(said.Model(), said.measured_ms);
      curves[curve++].points.push_back(
          {Counted(part, fit.by_record.train), metrics.mape_percent, metrics.kendall_tau});
    }
  };
  for (const std::int64_t divisor : kLearningCurveDivisors) {
    if (std::ssize(task.by_record.train) < divisor) continue;
    NS_ASSIGN_OR_RETURN(const EnsembleFit fit, FitEnsemble(task, context, divisor));
    add_points(fit);
  }
  add_points(whole);
  outcome.learning_curves.insert(outcome.learning_curves.end(), curves.begin(), curves.end());
  return absl::OkStatus();
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
               MemberPrefix(network.kind, static_cast<int>(m)), file);
  }
  return file;
}

NetworkTask PaperTask(NetworkKind kind, TrainingProblem problem, SampleSplit split,
                      const TrainingConfig& config) {
  NetworkTask task{kind, {}, std::move(split), &config};
  task.problem = [problem = std::move(problem),
                  optimization = task.optimization()](const SampleSplit& by_record) {
    TrainingProblem weighed = problem;
    weighed.weights = TargetWeights(problem, by_record, optimization.loss);
    weighed.scale = TargetScale(problem, by_record, optimization);
    return weighed;
  };
  return task;
}

StatusOr<EnsembleFit> FitEnsemble(const NetworkTask& task, const FitContext& context,
                                  std::int64_t divisor) {
  EnsembleFit fit;
  fit.by_record = task.by_record;
  if (divisor > 1) {
    fit.by_record.train =
        ShareOfTraining(std::move(fit.by_record.train), divisor, task.optimization().seed);
  }
  fit.problem = task.problem(fit.by_record);
  if (divisor > 1) fit.problem.name += fmt::format(", learning curve 1/{}", divisor);
  fit.ranks = task.ranks;
  fit.manifest = SectionOf(task.kind, fit.problem, *task.config);
  fit.network = DefinitionOf(fit.manifest);
  const SampleSplit split = task.ranks ? task.ranks->RanksOf(fit.by_record) : fit.by_record;
  NS_ASSIGN_OR_RETURN(fit.starts, ReadStarts(task, fit.problem, fit.network));
  Standardisation measured = fit.problem.Measure(split.train);
  if (task.start != nullptr) {
    measured = Continued(*task.start, MemberPrefix(task.kind, 0) + fit.network.tensors.front().name,
                         measured);
  }
  fit.problem.Standardise(std::move(measured));
  const std::string constant = fit.problem.standardisation.Constant(fit.problem.columns);
  if (divisor == 1 && !constant.empty()) {
    context.observer->OnWarning(
        fmt::format("{}: the same value in every training sample, so the network ignores: {}",
                    fit.problem.name, constant));
  }
  const OptimizationConfig config = fit.manifest.is_universal()
                                        ? ConfigForSamples(task.optimization(), split.train.size())
                                        : task.optimization();
  const std::vector<const SampleSplit*> splits(static_cast<std::size_t>(fit.manifest.members),
                                               &split);
  NS_ASSIGN_OR_RETURN(std::vector<MemberState> states,
                      FitMembers(fit.problem.name, fit, config, splits, context));
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

Status AddTrained(const NetworkTask& task, const EnsembleFit& fit,
                  const std::vector<HeldOutPart>& parts, const FitContext& context,
                  TrainingOutcome& outcome) {
  outcome.files[fit.manifest.file] = fit.File();
  AddReports(fit, parts, outcome);
  if (!task.config->learning_curve) return absl::OkStatus();
  return AddLearningCurves(task, fit, parts, context, outcome);
}

}  // namespace neuroshard
