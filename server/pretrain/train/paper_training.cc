#include <utility>

#include "server/cost/feature_columns.h"
#include "server/pretrain/data/measured_problem.h"
#include "server/pretrain/train/ensemble.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

// Trains a network, adds its file and report, and returns its section.
StatusOr<NetworkManifest> TrainPaperNetwork(NetworkKind kind, TrainingProblem problem,
                                            const std::string& file, std::string key,
                                            const TrainingConfig& config, const FitContext& context,
                                            TrainingOutcome& outcome) {
  const SampleSplit split = SplitSamples(problem.num_samples(), config.optimization.seed);
  const NetworkTask task = PaperTask(kind, std::move(problem), split, config);
  NS_ASSIGN_OR_RETURN(EnsembleFit fit, FitEnsemble(task, context));
  fit.manifest.file = file;
  NS_RETURN_IF_ERROR(
      AddTrained(task, fit, {{fit.problem.name, std::move(key), split.test}}, context, outcome));
  return fit.manifest;
}

}  // namespace

Status TrainPaperCompute(const std::vector<ComputeRecord>& records, const TrainingConfig& config,
                         const FitContext& context, TrainingOutcome& outcome) {
  const std::vector<std::string>& features = NeuroShardFeatureNames();
  NS_ASSIGN_OR_RETURN(const FeatureColumns columns,
                      FeatureColumns::Create(features, config.transforms));
  NS_ASSIGN_OR_RETURN(TrainingProblem problem,
                      MakeComputeProblem(records, features, columns, config.compute_outputs));
  NS_ASSIGN_OR_RETURN(
      outcome.manifest.compute,
      TrainPaperNetwork(NetworkKind::kTableSum, std::move(problem), "compute.safetensors",
                        "compute", config, context, outcome));
  return absl::OkStatus();
}

Status TrainPaperComm(const std::vector<CommRecord>& records, const TrainingConfig& config,
                      const FitContext& context, TrainingOutcome& outcome) {
  ModelManifest& manifest = outcome.manifest;
  for (const int num_ranks : RankCounts(records)) {
    for (const auto direction : {CommDirection::kBackward, CommDirection::kForward}) {
      TrainingProblem problem = MakeCommProblem(records, direction, num_ranks);
      if (problem.num_samples() < config.min_samples) {
        context.observer->OnWarning(fmt::format("{}: left out: {} samples, at least {} are needed",
                                                problem.name, problem.num_samples(),
                                                config.min_samples));
        continue;
      }
      NS_ASSIGN_OR_RETURN(
          NetworkManifest network,
          TrainPaperNetwork(NetworkKind::kDeviceCount, std::move(problem),
                            fmt::format("{}_comm_{}.safetensors", ToText(direction), num_ranks),
                            fmt::format("{}_comm.ranks_{}", ToText(direction), num_ranks), config,
                            context, outcome));
      (direction == CommDirection::kForward ? manifest.forward_comm : manifest.backward_comm)
          .push_back(std::move(network));
    }
  }
  if (manifest.forward_comm.empty() && manifest.backward_comm.empty()) {
    context.observer->OnWarning(
        "no communication network: the model prices plans for one device, and for devices that a "
        "request names by their published links");
  }
  return absl::OkStatus();
}

}  // namespace neuroshard
