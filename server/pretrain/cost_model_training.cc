#include "server/pretrain/cost_model_training.h"

#include <algorithm>
#include <thread>
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
                                          const OptimizationConfig& config, const StopSignal& stop,
                                          WorkerTeam& team, TrainingObserver* observer) {
  const SampleSplit split = SplitSamples(problem.num_samples(), config.seed);
  NS_ASSIGN_OR_RETURN(TrainingResult trained,
                      TrainNetwork(problem, split, shape, config, stop, team, observer));
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

int TrainingThreads(const TrainingConfig& config) {
  if (config.threads > 0) return static_cast<int>(config.threads);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

StatusOr<TrainedCostModel> TrainCostModel(const SelectedRecords& records,
                                          const TrainingConfig& config, const StopSignal& stop,
                                          TrainingObserver* observer) {
  const std::vector<ComputeRecord> compute_records = MergeRepeats(records.compute);
  const std::vector<CommRecord> comm_records = MergeRepeats(records.comm);
  const auto compute_samples = static_cast<std::int64_t>(compute_records.size());
  if (compute_samples < config.min_samples) {
    return FailedPrecondition(
        "{} compute samples are too few to learn from, at least {} are needed", compute_samples,
        config.min_samples);
  }
  WorkerTeam team(TrainingThreads(config));
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
                                     config.optimization, stop, team, observer));
  model.compute = std::move(trained.network);
  model.compute_report = std::move(trained.report);

  for (const int num_ranks : RankCounts(comm_records)) {
    for (const auto direction : {CommDirection::kBackward, CommDirection::kForward}) {
      const TrainingProblem problem = MakeCommProblem(comm_records, direction, num_ranks);
      if (problem.num_samples() < config.min_samples) {
        observer->OnWarning(fmt::format("{}: left out: {} samples, at least {} are needed",
                                        problem.name, problem.num_samples(), config.min_samples));
        continue;
      }
      NS_ASSIGN_OR_RETURN(NetworkAndReport comm,
                          TrainAndReport(problem, {{}, config.comm_hidden}, config.optimization,
                                         stop, team, observer));
      model.comm.push_back({direction, num_ranks, std::move(comm.network), std::move(comm.report)});
    }
  }
  if (model.comm.empty()) {
    observer->OnWarning("no communication network: the model can price plans for one device only");
  }
  return model;
}

}  // namespace neuroshard
