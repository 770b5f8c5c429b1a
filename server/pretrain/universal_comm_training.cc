#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "server/pretrain/comm_calibration.h"
#include "server/pretrain/record_split.h"
#include "server/pretrain/universal_ensemble.h"
#include "server/pretrain/universal_networks.h"
#include "server/pretrain/universal_stages.h"

namespace neuroshard {
namespace {

std::string KeyOf(CollectiveKind kind) {
  if (kind == CollectiveKind::kAllToAllForward) return "forward_comm";
  if (kind == CollectiveKind::kAllToAllBackward) return "backward_comm";
  return std::string(CollectiveName(kind));
}

// What a fit of communication made of its samples.
struct CommFit {
  UniversalCommProblem comm;
  NetworkGraph graph;
  std::vector<std::vector<float>> starts;  // empty: it began at random weights
  FittedEnsemble ensemble;
  // Of a model only.
  CommCalibration calibration;

  EnsemblePredictions Predict(const std::vector<std::int64_t>& collectives) const {
    return PredictEnsemble(comm.problem, graph, ensemble.weights, comm.RanksOf(collectives));
  }
};

StatusOr<CommFit> FitComm(const std::string& name, const std::vector<CommRecord>& records,
                          const SampleSplit& by_record, const TrainingConfig& config,
                          const UniversalStart* start, FitPurpose purpose,
                          const FitContext& context) {
  CommFit fit;
  fit.comm = MakeUniversalComm(records);
  fit.graph = UniversalCommGraph({{config.comm_hidden.begin(), config.comm_hidden.end()}});
  UniversalProblem& problem = fit.comm.problem;
  const SampleSplit split = fit.comm.RanksOf(by_record);
  if (start != nullptr && start->manifest.comm) {
    NS_ASSIGN_OR_RETURN(fit.starts, StartWeights(start->manifest.comm->members, "comm", [&](int m) {
                          return CommMemberWeights(fit.graph, start->comm, m, problem.unit_ms);
                        }));
  }
  StandardiseProblem(name, split.train, fit.starts.empty() ? nullptr : &start->comm,
                     "member.0.layer.0.weight", problem,
                     purpose == FitPurpose::kModel ? context.observer : nullptr);
  const EnsembleTask task{
      name,       &problem,          &split, &fit.graph, config.comm_optimization, config.members,
      fit.starts, UniversalCommStart};
  NS_ASSIGN_OR_RETURN(fit.ensemble, FitEnsemble(task, context));
  if (purpose == FitPurpose::kLearningCurve) return fit;
  UnseenCollectives unseen{by_record.validation, fit.Predict(by_record.validation).Model()};
  // The network to go on from may have learned from any but the validation samples.
  if (fit.starts.empty()) {
    NS_ASSIGN_OR_RETURN(unseen, LeaveOutInTurn(fit.comm, by_record, task, context));
  }
  fit.calibration = CalibrateComm(fit.comm, fit.graph, fit.ensemble, unseen);
  return fit;
}

std::vector<std::int64_t> OfKind(const UniversalCommProblem& comm, CollectiveKind kind,
                                 std::vector<std::int64_t> collectives) {
  std::erase_if(collectives, [&](std::int64_t at) { return comm.kinds[at] != kind; });
  return collectives;
}

Status AddLearningCurve(const std::vector<CommRecord>& records, const SampleSplit& by_record,
                        const TrainingConfig& config, const CommFit& whole,
                        const FitContext& context, TrainingOutcome& outcome) {
  const auto add = [&](const CommFit& fit, const std::vector<std::int64_t>& train) {
    for (std::size_t k = 0; k < kCollectiveKinds; ++k) {
      const auto kind = static_cast<CollectiveKind>(k);
      const std::vector<std::int64_t> held_out = OfKind(fit.comm, kind, by_record.test);
      if (held_out.empty()) continue;
      const EnsemblePredictions said = fit.Predict(held_out);
      AddLearningPoint(std::string(CollectiveName(kind)), std::ssize(OfKind(fit.comm, kind, train)),
                       MeasureRegression(said.Model(), said.measured_ms), outcome.learning_curves);
    }
  };
  for (const std::int64_t divisor : kLearningCurveDivisors) {
    SampleSplit part = by_record;
    part.train = ShareOfTraining(part.train, divisor, config.optimization.seed);
    if (part.train.empty()) continue;
    NS_ASSIGN_OR_RETURN(const CommFit fit,
                        FitComm(LearningFitName("comm", divisor), records, part, config, nullptr,
                                FitPurpose::kLearningCurve, context));
    add(fit, part.train);
  }
  add(whole, by_record.train);
  return absl::OkStatus();
}

void AddReports(const std::vector<CommRecord>& records, const SampleSplit& by_record,
                const UniversalCommManifest& manifest, const CommFit& fit,
                TrainingOutcome& outcome) {
  const UniversalCommProblem& comm = fit.comm;
  const auto report = [&](const std::string& name, const std::string& key, CollectiveKind kind,
                          bool is_part, const auto& belongs) {
    const auto those = [&](std::vector<std::int64_t> collectives) {
      std::erase_if(collectives, [&](std::int64_t at) { return !belongs(at); });
      return OfKind(comm, kind, std::move(collectives));
    };
    const std::vector<std::int64_t> collectives = those(by_record.test);
    std::vector<int> num_ranks;
    for (const std::int64_t at : collectives) {
      const std::size_t ranks = records[at].sample.dim_sums.size();
      num_ranks.insert(num_ranks.end(), ranks, static_cast<int>(ranks));
    }
    const IntervalManifest* interval = manifest.IntervalOf(std::string(CollectiveName(kind)));
    NetworkReport result = ReportOn(name, key, fit.Predict(collectives),
                                    interval == nullptr ? std::nullopt : std::optional(*interval),
                                    std::ssize(collectives), num_ranks);
    result.train_samples = std::ssize(those(by_record.train));
    result.validation_samples = std::ssize(those(by_record.validation));
    result.epochs = fit.ensemble.epochs;
    result.best_epoch = fit.ensemble.best_epoch;
    result.is_part = is_part;
    outcome.reports.push_back(result);
    if (!fit.starts.empty() && !is_part) {
      outcome.reports.push_back(ReportBefore(
          result, PredictEnsemble(comm.problem, fit.graph, fit.starts, comm.RanksOf(collectives))));
    }
  };
  for (std::size_t k = 0; k < kCollectiveKinds; ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    std::set<std::size_t> counts;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (comm.kinds[i] == kind) counts.insert(records[i].sample.dim_sums.size());
    }
    if (counts.empty()) continue;
    const std::string name(CollectiveName(kind));
    report(name, KeyOf(kind), kind, false, [](std::int64_t) { return true; });
    for (const std::size_t ranks : counts) {
      if (counts.size() < 2) break;
      report(fmt::format("{} x{}", name, ranks), fmt::format("{}.ranks_{}", KeyOf(kind), ranks),
             kind, true,
             [&](std::int64_t at) { return records[at].sample.dim_sums.size() == ranks; });
    }
  }
}

}  // namespace

Status TrainUniversalComm(const std::vector<CommRecord>& records, const TrainingConfig& config,
                          const UniversalStart* start, const FitContext& context,
                          TrainingOutcome& outcome) {
  const SampleSplit by_record = SplitComm(records, config.optimization.seed);
  NS_ASSIGN_OR_RETURN(const CommFit fit, FitComm("comm", records, by_record, config, start,
                                                 FitPurpose::kModel, context));
  const UniversalProblem& problem = fit.comm.problem;
  UniversalCommManifest manifest;
  manifest.file = "comm.safetensors";
  manifest.features = problem.feature_names;
  manifest.layers = LayersOf(problem.fit.row_columns, config.comm_hidden, 1);
  manifest.members = static_cast<int>(config.members);
  manifest.interval = fit.calibration.all;
  manifest.intervals = fit.calibration.by_collective;
  std::vector<bool> measured(kCollectiveKinds, false);
  for (const CollectiveKind kind : fit.comm.kinds) measured[static_cast<std::size_t>(kind)] = true;
  TensorFile file;
  AddStandardisation(problem.standardisation, file);
  for (std::size_t m = 0; m < fit.ensemble.weights.size(); ++m) {
    AddCommMember(fit.graph, fit.ensemble.weights[m], static_cast<int>(m), problem.unit_ms,
                  problem.standardisation, measured, file);
  }
  AddReports(records, by_record, manifest, fit, outcome);
  outcome.manifest.comm = std::move(manifest);
  outcome.files[outcome.manifest.comm->file] = std::move(file);
  if (!config.learning_curve || start != nullptr) return absl::OkStatus();
  return AddLearningCurve(records, by_record, config, fit, context, outcome);
}

}  // namespace neuroshard
