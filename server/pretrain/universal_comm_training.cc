#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "server/pretrain/record_split.h"
#include "server/pretrain/universal_ensemble.h"
#include "server/pretrain/universal_networks.h"
#include "server/pretrain/universal_stages.h"

namespace neuroshard {
namespace {

// Positions of the ranks of records.
std::vector<std::int64_t> RanksOf(const UniversalCommProblem& comm,
                                  const std::vector<std::int64_t>& records) {
  std::vector<std::int64_t> ranks;
  for (const std::int64_t record : records) {
    for (auto r = comm.first_rank[record]; r < comm.first_rank[record + 1]; ++r) ranks.push_back(r);
  }
  return ranks;
}

std::string KeyOf(CollectiveKind kind) {
  if (kind == CollectiveKind::kAllToAllForward) return "forward_comm";
  if (kind == CollectiveKind::kAllToAllBackward) return "backward_comm";
  return std::string(CollectiveName(kind));
}

}  // namespace

Status TrainUniversalComm(const std::vector<CommRecord>& records, const TrainingConfig& config,
                          const UniversalStart* start, const FitContext& context,
                          TrainingOutcome& outcome) {
  const SampleSplit by_record = SplitComm(records, config.optimization.seed);
  UniversalCommProblem comm = MakeUniversalComm(records);
  UniversalProblem& problem = comm.problem;
  const SampleSplit split = {RanksOf(comm, by_record.train), RanksOf(comm, by_record.validation),
                             RanksOf(comm, by_record.test)};
  UniversalCommManifest manifest;
  manifest.file = "comm.safetensors";
  manifest.features = problem.feature_names;
  manifest.layers = LayersOf(problem.fit.row_columns, config.comm_hidden, 1);
  manifest.members = static_cast<int>(config.members);
  const NetworkGraph graph =
      UniversalCommGraph({{config.comm_hidden.begin(), config.comm_hidden.end()}});
  std::vector<bool> measured(kCollectiveKinds, false);
  for (const CollectiveKind kind : comm.kinds) measured[static_cast<std::size_t>(kind)] = true;
  std::vector<std::vector<float>> starts;
  if (start != nullptr && start->manifest.comm) {
    NS_ASSIGN_OR_RETURN(starts, StartWeights(start->manifest.comm->members, "comm", [&](int m) {
                          return CommMemberWeights(graph, start->comm, m, problem.unit_ms);
                        }));
  }
  StandardiseProblem("comm", split.train, starts.empty() ? nullptr : &start->comm,
                     "member.0.layer.0.weight", problem, context.observer);
  NS_ASSIGN_OR_RETURN(const FittedEnsemble ensemble,
                      FitEnsemble({"comm", &problem, &split, &graph, config.comm_optimization,
                                   config.members, starts, UniversalCommStart},
                                  context));
  manifest.interval = CalibrateInterval(
      PredictEnsemble(problem, graph, ensemble.weights, split.validation), kIntervalCoverage);
  TensorFile file;
  AddStandardisation(problem.standardisation, file);
  for (std::size_t m = 0; m < ensemble.weights.size(); ++m) {
    AddCommMember(graph, ensemble.weights[m], static_cast<int>(m), problem.unit_ms,
                  problem.standardisation, measured, file);
  }

  const auto report = [&](const std::string& name, const std::string& key, bool is_part,
                          const auto& belongs) {
    std::vector<std::int64_t> collectives;
    for (const std::int64_t at : by_record.test) {
      if (belongs(at)) collectives.push_back(at);
    }
    const auto count = [&](const std::vector<std::int64_t>& part) {
      return static_cast<std::int64_t>(std::count_if(part.begin(), part.end(), belongs));
    };
    const auto ranks = RanksOf(comm, collectives);
    NetworkReport result =
        ReportOn(name, key, PredictEnsemble(problem, graph, ensemble.weights, ranks),
                 manifest.interval, std::ssize(collectives));
    result.train_samples = count(by_record.train);
    result.validation_samples = count(by_record.validation);
    result.epochs = ensemble.epochs;
    result.best_epoch = ensemble.best_epoch;
    result.is_part = is_part;
    outcome.reports.push_back(result);
    if (!starts.empty() && !is_part) {
      outcome.reports.push_back(
          ReportBefore(result, PredictEnsemble(problem, graph, {starts.front()}, ranks)));
    }
  };
  for (std::size_t k = 0; k < kCollectiveKinds; ++k) {
    if (!measured[k]) continue;
    const auto kind = static_cast<CollectiveKind>(k);
    const std::string name(CollectiveName(kind));
    report(name, KeyOf(kind), false, [&](std::int64_t at) { return comm.kinds[at] == kind; });
    std::set<std::size_t> counts;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (comm.kinds[i] == kind) counts.insert(records[i].sample.dim_sums.size());
    }
    for (const std::size_t ranks : counts) {
      if (counts.size() < 2) break;
      report(fmt::format("{} x{}", name, ranks), fmt::format("{}.ranks_{}", KeyOf(kind), ranks),
             true, [&](std::int64_t at) {
               return comm.kinds[at] == kind && records[at].sample.dim_sums.size() == ranks;
             });
    }
  }
  outcome.manifest.comm = std::move(manifest);
  outcome.files[outcome.manifest.comm->file] = std::move(file);
  return absl::OkStatus();
}

}  // namespace neuroshard
