#include "server/pretrain/cost_model_training.h"

#include <utility>

#include "server/cost/feature_columns.h"
#include "server/pretrain/repeated_samples.h"
#include "server/pretrain/training_set.h"

namespace neuroshard {
namespace {

struct NetworkAndReport {
  TrainedNetwork network;
  NetworkReport report;
};

// Sums each sample's outputs: forward + backward of compute.
std::vector<double> Totals(const std::vector<double>& values, int outputs) {
  std::vector<double> totals(values.size() / outputs, 0);
  for (std::size_t i = 0; i < values.size(); ++i) totals[i / outputs] += values[i];
  return totals;
}

StatusOr<NetworkAndReport> TrainAndReport(const TrainingProblem& problem, const NetworkShape& shape,
                                          const OptimizationConfig& config,
                                          const FitContext& context) {
  const SampleSplit split = SplitSamples(problem.num_samples(), config.seed);
  NS_ASSIGN_OR_RETURN(TrainingResult trained, TrainNetwork(problem, split, shape, config, context));
  NetworkReport report;
  report.name = problem.name;
  report.train_samples = static_cast<std::int64_t>(split.train.size());
  report.validation_samples = static_cast<std::int64_t>(split.validation.size());
  report.epochs = trained.epochs;
  report.best_epoch = trained.best_epoch;
  report.predicted_ms = PredictSamples(trained.network, problem, split.test);
  for (const auto sample : split.test) {
    for (int o = 0; o < problem.outputs; ++o) {
      report.measured_ms.push_back(problem.targets[sample * problem.outputs + o]);
    }
  }
  if (problem.total_counts) {
    report.predicted_ms = Totals(report.predicted_ms, problem.outputs);
    report.measured_ms = Totals(report.measured_ms, problem.outputs);
  }
  report.held_out = MeasureRegression(report.predicted_ms, report.measured_ms);
  report.held_out.samples = static_cast<std::int64_t>(split.test.size());
  return NetworkAndReport{std::move(trained.network), std::move(report)};
}

std::vector<std::int64_t> LayerWidths(std::int64_t inputs, const std::vector<LinearLayer>& layers) {
  std::vector<std::int64_t> widths = {inputs};
  for (const LinearLayer& layer : layers) widths.push_back(layer.outputs);
  return widths;
}

void AddLayers(const std::string& prefix, const std::vector<LinearLayer>& layers,
               TensorFile& file) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LinearLayer& layer = layers[i];
    const std::string name = fmt::format("{}.{}", prefix, i);
    file.tensors[name + ".weight"] = {{layer.outputs, layer.inputs}, layer.weight};
    file.tensors[name + ".bias"] = {{layer.outputs}, layer.bias};
  }
}

TensorFile MakeTensorFile(const TrainedNetwork& network) {
  TensorFile file;
  const auto features = static_cast<std::int64_t>(network.feature_mean.size());
  file.tensors["feature_mean"] = {{features}, network.feature_mean};
  file.tensors["feature_std"] = {{features}, network.feature_std};
  const bool sums_rows = !network.row_layers.empty();
  if (sums_rows) AddLayers("table", network.row_layers, file);
  AddLayers(sums_rows ? "head" : "layer", network.head_layers, file);
  return file;
}
}  // namespace

StatusOr<TrainedCostModel> TrainCostModel(const SelectedRecords& records,
                                          const TrainingConfig& config, const FitContext& context) {
  const std::vector<ComputeRecord> compute_records = MergeRepeats(records.compute);
  const std::vector<CommRecord> comm_records = MergeRepeats(records.comm);
  const auto compute_samples = static_cast<std::int64_t>(compute_records.size());
  if (compute_samples < config.min_samples) {
    return FailedPrecondition(
        "{} compute samples are too few to learn from, at least {} are needed", compute_samples,
        config.min_samples);
  }
  TrainedCostModel model;
  model.conditions = records.conditions;
  model.features = NeuroShardFeatureNames();
  model.transforms = config.transforms;
  NS_ASSIGN_OR_RETURN(const FeatureColumns columns,
                      FeatureColumns::Create(model.features, model.transforms));
  NS_ASSIGN_OR_RETURN(
      const TrainingProblem compute,
      MakeComputeProblem(compute_records, model.features, columns, config.compute_outputs));
  model.compute_outputs = compute.outputs == 2
                              ? std::vector<std::string>{"forward_ms", "backward_ms"}
                              : std::vector<std::string>{"total_ms"};
  NS_ASSIGN_OR_RETURN(NetworkAndReport trained,
                      TrainAndReport(compute, {config.table_hidden, config.head_hidden},
                                     config.optimization, context));
  trained.report.key = "compute";
  model.compute = std::move(trained.network);
  model.compute_report = std::move(trained.report);

  for (const int num_ranks : RankCounts(comm_records)) {
    for (const auto direction : {CommDirection::kBackward, CommDirection::kForward}) {
      const TrainingProblem problem = MakeCommProblem(comm_records, direction, num_ranks);
      if (problem.num_samples() < config.min_samples) {
        context.observer->OnWarning(fmt::format("{}: left out: {} samples, at least {} are needed",
                                                problem.name, problem.num_samples(),
                                                config.min_samples));
        continue;
      }
      NS_ASSIGN_OR_RETURN(NetworkAndReport comm, TrainAndReport(problem, {{}, config.comm_hidden},
                                                                config.comm_optimization, context));
      comm.report.key = fmt::format("{}_comm.ranks_{}", ToText(direction), num_ranks);
      model.comm.push_back({direction, num_ranks, std::move(comm.network), std::move(comm.report)});
    }
  }
  if (model.comm.empty()) {
    context.observer->OnWarning(
        "no communication network: the model can price plans for one device only");
  }
  return model;
}

TrainingOutcome OutcomeOf(TrainedCostModel model) {
  TrainingOutcome outcome;
  ModelManifest& manifest = outcome.manifest;
  manifest.device = model.conditions.device;
  manifest.backend = model.conditions.backend;
  if (!model.comm.empty()) manifest.collective_backend = model.conditions.collective_backend;
  manifest.global_batch_size = model.conditions.batch_size;
  manifest.weight_dtype = model.conditions.weight_dtype;
  manifest.optimizer = model.conditions.optimizer;
  const auto features = static_cast<std::int64_t>(model.features.size());
  manifest.compute.file = "compute.safetensors";
  manifest.compute.features = model.features;
  manifest.compute.transforms = model.transforms;
  manifest.compute.table_layers = LayerWidths(features, model.compute.row_layers);
  manifest.compute.head_layers =
      LayerWidths(manifest.compute.table_layers.back(), model.compute.head_layers);
  manifest.compute.outputs = model.compute_outputs;
  outcome.files[manifest.compute.file] = MakeTensorFile(model.compute);
  outcome.reports.push_back(std::move(model.compute_report));
  for (TrainedCommNetwork& comm : model.comm) {
    CommNetworkManifest network;
    network.file = fmt::format("{}_comm_{}.safetensors", ToText(comm.direction), comm.num_ranks);
    network.num_devices = comm.num_ranks;
    network.layers = LayerWidths(static_cast<std::int64_t>(comm.network.feature_mean.size()),
                                 comm.network.head_layers);
    outcome.files[network.file] = MakeTensorFile(comm.network);
    const bool forward = comm.direction == CommDirection::kForward;
    (forward ? manifest.forward_comm : manifest.backward_comm).push_back(std::move(network));
    outcome.reports.push_back(std::move(comm.report));
  }
  return outcome;
}

}  // namespace neuroshard
