#include "server/pretrain/train/cost_model_training.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

#include "server/cost/feature_columns.h"
#include "server/pretrain/data/repeated_samples.h"
#include "server/pretrain/data/training_set.h"

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

// Trains the network that a manifest's section describes, and adds its file and report.
template <typename NetworkManifest>
Status AddTrained(TrainingProblem problem, const NetworkManifest& manifest, std::string key,
                  const OptimizationConfig& config, const FitContext& context,
                  TrainingOutcome& outcome) {
  const SampleSplit split = SplitSamples(problem.num_samples(), config.seed);
  NS_ASSIGN_OR_RETURN(
      const EnsembleFit fit,
      TrainNetwork(std::move(problem), DefinitionOf(manifest), split, config, context));
  outcome.files[manifest.file] = fit.File();
  AddReports(fit, split, {{fit.problem.name, std::move(key), split.test}}, outcome);
  return absl::OkStatus();
}

Status TrainCompute(const std::vector<ComputeRecord>& records, const TrainingConfig& config,
                    const FitContext& context, TrainingOutcome& outcome) {
  ComputeNetworkManifest& manifest = outcome.manifest.compute;
  manifest.file = "compute.safetensors";
  manifest.features = NeuroShardFeatureNames();
  manifest.transforms = config.transforms;
  NS_ASSIGN_OR_RETURN(const FeatureColumns columns,
                      FeatureColumns::Create(manifest.features, manifest.transforms));
  NS_ASSIGN_OR_RETURN(TrainingProblem problem, MakeComputeProblem(records, manifest.features,
                                                                  columns, config.compute_outputs));
  manifest.table_layers = {problem.num_columns()};
  manifest.table_layers.insert(manifest.table_layers.end(), config.table_hidden.begin(),
                               config.table_hidden.end());
  manifest.head_layers =
      LayersOf(manifest.table_layers.back(), config.head_hidden, problem.outputs);
  if (problem.outputs == 2) manifest.outputs = {"forward_ms", "backward_ms"};
  return AddTrained(std::move(problem), manifest, "compute", config.optimization, context, outcome);
}

Status TrainComm(const std::vector<CommRecord>& records, CommDirection direction, int num_ranks,
                 const TrainingConfig& config, const FitContext& context,
                 TrainingOutcome& outcome) {
  TrainingProblem problem = MakeCommProblem(records, direction, num_ranks);
  if (problem.num_samples() < config.min_samples) {
    context.observer->OnWarning(fmt::format("{}: left out: {} samples, at least {} are needed",
                                            problem.name, problem.num_samples(),
                                            config.min_samples));
    return absl::OkStatus();
  }
  CommNetworkManifest network;
  network.file = fmt::format("{}_comm_{}.safetensors", ToText(direction), num_ranks);
  network.num_devices = num_ranks;
  network.layers = LayersOf(problem.num_columns(), config.comm_hidden, num_ranks);
  NS_RETURN_IF_ERROR(AddTrained(std::move(problem), network,
                                fmt::format("{}_comm.ranks_{}", ToText(direction), num_ranks),
                                config.comm_optimization, context, outcome));
  (direction == CommDirection::kForward ? outcome.manifest.forward_comm
                                        : outcome.manifest.backward_comm)
      .push_back(std::move(network));
  return absl::OkStatus();
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

StatusOr<TrainingOutcome> TrainCostModel(const SelectedRecords& records,
                                         const TrainingConfig& config, const FitContext& context) {
  const std::vector<ComputeRecord> compute = MergeRepeats(records.compute, config.cost_of_series);
  const std::vector<CommRecord> comm = MergeRepeats(records.comm, config.cost_of_series);
  if (std::ssize(compute) < config.min_samples) {
    return FailedPrecondition(
        "{} compute samples are too few to learn from, at least {} are needed", compute.size(),
        config.min_samples);
  }
  TrainingOutcome outcome;
  ModelManifest& manifest = outcome.manifest;
  manifest.device = records.conditions.device;
  manifest.backend = records.conditions.backend;
  manifest.global_batch_size = records.conditions.batch_size;
  manifest.weight_dtype = records.conditions.weight_dtype;
  manifest.optimizer = records.conditions.optimizer;
  NS_RETURN_IF_ERROR(TrainCompute(compute, config, context, outcome));
  for (const int num_ranks : RankCounts(comm)) {
    for (const auto direction : {CommDirection::kBackward, CommDirection::kForward}) {
      NS_RETURN_IF_ERROR(TrainComm(comm, direction, num_ranks, config, context, outcome));
    }
  }
  if (manifest.forward_comm.empty() && manifest.backward_comm.empty()) {
    context.observer->OnWarning(
        "no communication network: the model prices plans for one device, and for devices that a "
        "request names by their published links");
  } else {
    manifest.collective_backend = records.conditions.collective_backend;
    manifest.collective_cadence = records.conditions.collective_cadence;
  }
  return outcome;
}

}  // namespace neuroshard
