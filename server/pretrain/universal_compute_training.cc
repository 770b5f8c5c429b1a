#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "server/pretrain/record_split.h"
#include "server/pretrain/universal_ensemble.h"
#include "server/pretrain/universal_networks.h"
#include "server/pretrain/universal_stages.h"

namespace neuroshard {

Status TrainUniversalCompute(const MergedRecords<ComputeRecord>& merged,
                             const TrainingConfig& config, const UniversalStart* start,
                             const FitContext& context, TrainingOutcome& outcome) {
  const std::vector<ComputeRecord>& records = merged.all;
  const ComputeSplit split =
      SplitCompute(records, config.held_out_tables, config.optimization.seed);
  const double cache_bytes = start != nullptr
                                 ? static_cast<double>(start->manifest.universal->cache_bytes)
                                 : static_cast<double>(config.cache_bytes);
  UniversalProblem problem = MakeUniversalCompute(records, split.samples.train, cache_bytes);
  UniversalComputeManifest manifest;
  manifest.file = "compute.safetensors";
  manifest.features = problem.feature_names;
  manifest.cache_bytes = static_cast<std::int64_t>(cache_bytes);
  manifest.table_layers =
      LayersOf(problem.fit.row_columns, config.table_hidden, config.representation);
  manifest.head_width = config.head_hidden.front();
  manifest.members = static_cast<int>(config.members);
  if (problem.fit.outputs == 2) manifest.outputs = {"forward_ms", "backward_ms"};
  const NetworkGraph graph =
      UniversalComputeGraph({problem.fit.row_columns,
                             {config.table_hidden.begin(), config.table_hidden.end()},
                             config.representation,
                             manifest.head_width,
                             problem.fit.outputs});
  std::vector<std::vector<float>> starts;
  if (start != nullptr) {
    NS_ASSIGN_OR_RETURN(starts,
                        StartWeights(start->manifest.universal->members, "compute", [&](int m) {
                          return ComputeMemberWeights(graph, start->compute, m, problem.unit_ms);
                        }));
  }
  StandardiseProblem("compute", split.samples.train, start == nullptr ? nullptr : &start->compute,
                     "member.0.table.0.weight", problem, context.observer);
  NS_ASSIGN_OR_RETURN(const FittedEnsemble ensemble,
                      FitEnsemble({"compute", &problem, &split.samples, &graph, config.optimization,
                                   config.members, starts, UniversalComputeStart},
                                  context));
  manifest.interval =
      CalibrateInterval(PredictEnsemble(problem, graph, ensemble.weights, split.samples.validation),
                        kIntervalCoverage);
  TensorFile file;
  AddStandardisation(problem.standardisation, file);
  for (std::size_t m = 0; m < ensemble.weights.size(); ++m) {
    AddComputeMember(graph, ensemble.weights[m], static_cast<int>(m), problem.unit_ms,
                     problem.standardisation, file);
  }

  const auto report = [&](const std::string& name, const std::string& key,
                          const std::vector<std::int64_t>& samples, bool is_part) {
    NetworkReport result =
        ReportOn(name, key, PredictEnsemble(problem, graph, ensemble.weights, samples),
                 manifest.interval, std::ssize(samples));
    result.train_samples = std::ssize(split.samples.train);
    result.validation_samples = std::ssize(split.samples.validation);
    result.epochs = ensemble.epochs;
    result.best_epoch = ensemble.best_epoch;
    result.is_part = is_part;
    outcome.reports.push_back(result);
    if (start != nullptr) {
      outcome.reports.push_back(
          ReportBefore(result, PredictEnsemble(problem, graph, {starts.front()}, samples)));
    }
  };
  report("compute", "compute", split.samples.test, false);
  if (!split.unseen_tables.empty()) {
    report("compute, unseen tables", "compute.unseen_tables", split.unseen_tables, false);
  }
  if (merged.new_ones < std::ssize(records)) {
    std::vector<std::int64_t> fresh = split.samples.test;
    std::erase_if(fresh, [&](std::int64_t at) { return at >= merged.new_ones; });
    std::vector<std::int64_t> replayed = split.samples.test;
    std::erase_if(replayed, [&](std::int64_t at) { return at < merged.new_ones; });
    report("compute, new samples", "compute.new_samples", fresh, true);
    report("compute, replayed samples", "compute.replayed_samples", replayed, true);
  }
  outcome.remarks.push_back(fmt::format(
      "{} of {} tables are held out: the {} samples that have one of them are only reported on.",
      split.held_out_tables, split.tables, split.unseen_tables.size()));
  outcome.manifest.universal = std::move(manifest);
  outcome.files[outcome.manifest.universal->file] = std::move(file);
  return absl::OkStatus();
}

}  // namespace neuroshard
