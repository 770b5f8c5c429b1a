#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "server/pretrain/data/record_split.h"
#include "server/pretrain/data/universal_problem.h"
#include "server/pretrain/train/comm_calibration.h"
#include "server/pretrain/train/ensemble.h"
#include "server/pretrain/train/universal_stages.h"

namespace neuroshard {
namespace {

std::string KeyOf(CollectiveKind kind) {
  if (kind == CollectiveKind::kAllToAllForward) return "forward_comm";
  if (kind == CollectiveKind::kAllToAllBackward) return "backward_comm";
  return std::string(CollectiveName(kind));
}

UniversalCommManifest ManifestOf(const TrainingProblem& problem, const TrainingConfig& config) {
  UniversalCommManifest manifest;
  manifest.file = "comm.safetensors";
  manifest.features = problem.columns;
  manifest.layers = LayersOf(problem.num_columns(), config.comm_hidden, 1);
  manifest.members = static_cast<int>(config.members);
  return manifest;
}

// An ensemble whose samples are the ranks of collectives.
struct CommFit {
  EnsembleFit ensemble;
  CollectiveRanks ranks;

  EnsemblePredictions Predict(const std::vector<std::int64_t>& collectives) const {
    return ensemble.Predict(ranks.RanksOf(collectives));
  }
};

StatusOr<CommFit> FitComm(const std::string& name, const std::vector<CommRecord>& records,
                          const SampleSplit& by_record, const TrainingConfig& config,
                          const UniversalStart* start, FitPurpose purpose,
                          const FitContext& context) {
  UniversalCommProblem comm = MakeUniversalComm(records);
  comm.problem.name = name;
  NetworkDefinition network = DefinitionOf(ManifestOf(comm.problem, config));
  CommFit fit;
  fit.ranks = std::move(comm.ranks);
  const SampleSplit split = fit.ranks.RanksOf(by_record);
  EnsembleOptions options{ConfigForSamples(config.comm_optimization, split.train.size()),
                          config.members, purpose};
  if (start != nullptr && start->manifest.comm) {
    options.start = &start->comm;
    options.start_members = start->manifest.comm->members;
  }
  NS_ASSIGN_OR_RETURN(fit.ensemble, FitEnsemble(std::move(comm.problem), std::move(network), split,
                                                options, context));
  return fit;
}

// By collectives that a network had not learned from.
StatusOr<CommCalibration> Calibrate(const CommFit& fit, const SampleSplit& by_record,
                                    const TrainingConfig& config, const FitContext& context) {
  UnseenCollectives unseen;
  if (fit.ensemble.starts.empty()) {
    NS_ASSIGN_OR_RETURN(unseen, LeaveOutInTurn(fit.ensemble, fit.ranks, by_record,
                                               config.comm_optimization, context));
  } else {
    // The network to go on from may have learned from any but the validation samples.
    unseen = {by_record.validation, fit.Predict(by_record.validation).Model()};
  }
  return CalibrateComm(fit.ensemble, fit.ranks, unseen);
}

// Collectives that no sample had get no wait and no floor.
void ForgetUnmeasured(const CommFit& fit, TensorFile& file) {
  for (std::size_t c = 0; c < kCollectiveKinds; ++c) {
    const auto kind = static_cast<CollectiveKind>(c);
    const auto& kinds = fit.ranks.kinds;
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
    for (auto& [name, tensor] : file.tensors) {
      if (name.ends_with(".wait_scale") || name.ends_with(".floor_ms")) tensor.values[c] = 0;
    }
  }
}

std::vector<std::int64_t> OfKind(const CollectiveRanks& ranks, CollectiveKind kind,
                                 std::vector<std::int64_t> collectives) {
  std::erase_if(collectives, [&](std::int64_t at) { return ranks.kinds[at] != kind; });
  return collectives;
}

Status AddLearningCurve(const std::vector<CommRecord>& records, const SampleSplit& by_record,
                        const TrainingConfig& config, const CommFit& whole,
                        const FitContext& context, TrainingOutcome& outcome) {
  const auto add = [&](const CommFit& fit, const std::vector<std::int64_t>& train) {
    for (std::size_t k = 0; k < kCollectiveKinds; ++k) {
      const auto kind = static_cast<CollectiveKind>(k);
      const std::vector<std::int64_t> held_out = OfKind(fit.ranks, kind, by_record.test);
      if (held_out.empty()) continue;
      const EnsemblePredictions said = fit.Predict(held_out);
      AddLearningPoint(std::string(CollectiveName(kind)),
                       std::ssize(OfKind(fit.ranks, kind, train)),
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
  const auto report = [&](const std::string& name, const std::string& key, CollectiveKind kind,
                          bool is_part, const auto& belongs) {
    const auto those = [&](std::vector<std::int64_t> collectives) {
      std::erase_if(collectives, [&](std::int64_t at) { return !belongs(at); });
      return OfKind(fit.ranks, kind, std::move(collectives));
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
    if (!fit.ensemble.starts.empty() && !is_part) {
      outcome.reports.push_back(
          ReportBefore(result, fit.ensemble.PredictBefore(fit.ranks.RanksOf(collectives))));
    }
  };
  for (std::size_t k = 0; k < kCollectiveKinds; ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    std::set<std::size_t> counts;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (fit.ranks.kinds[i] == kind) counts.insert(records[i].sample.dim_sums.size());
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
  NS_ASSIGN_OR_RETURN(const CommCalibration calibration,
                      Calibrate(fit, by_record, config, context));
  UniversalCommManifest manifest = ManifestOf(fit.ensemble.problem, config);
  manifest.interval = calibration.all;
  manifest.intervals = calibration.by_collective;
  TensorFile file = fit.ensemble.File();
  ForgetUnmeasured(fit, file);
  AddReports(records, by_record, manifest, fit, outcome);
  outcome.manifest.comm = std::move(manifest);
  outcome.files[outcome.manifest.comm->file] = std::move(file);
  if (!config.learning_curve || start != nullptr) return absl::OkStatus();
  return AddLearningCurve(records, by_record, config, fit, context, outcome);
}

}  // namespace neuroshard
