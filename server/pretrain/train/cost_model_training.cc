#include "server/pretrain/train/cost_model_training.h"

#include <iterator>
#include <utility>

#include "server/cost/feature_columns.h"
#include "server/pretrain/data/repeated_samples.h"
#include "server/pretrain/data/training_set.h"
#include "server/pretrain/train/network_trainer.h"

namespace neuroshard {
namespace {

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
  AddReports(fit, nullptr, split, {{fit.problem.name, std::move(key), split.test}}, outcome);
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
