#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/cost/comm_features.h"
#include "server/pretrain/data/measured_problem.h"
#include "server/pretrain/data/record_split.h"
#include "server/pretrain/train/ensemble.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

constexpr std::size_t kFolds = 5;

std::string KeyOf(CollectiveKind kind) {
  if (kind == CollectiveKind::kAllToAllForward) return "forward_comm";
  if (kind == CollectiveKind::kAllToAllBackward) return "backward_comm";
  return std::string(CollectiveName(kind));
}

// Collectives, with a cost a rank said by a network that had not learned from them.
struct UnseenCollectives {
  std::vector<std::int64_t> records;
  std::vector<double> said_ms;  // rank by rank
};

// The training and validation collectives, a fifth at a time said by a network that learned from
// the other four, as the ensemble's were fitted. Errors of RunFit.
StatusOr<UnseenCollectives> LeaveOutInTurn(const EnsembleFit& ensemble,
                                           const OptimizationConfig& config,
                                           const FitContext& context) {
  std::vector<std::int64_t> known = ensemble.by_record.train;
  const std::vector<std::int64_t>& validation = ensemble.by_record.validation;
  known.insert(known.end(), validation.begin(), validation.end());
  std::ranges::sort(known);
  Random(config.seed).Shuffle(known);
  std::vector<SampleSplit> folds(kFolds);
  for (std::size_t i = 0; i < known.size(); ++i) {
    for (std::size_t f = 0; f < kFolds; ++f) {
      (i % kFolds == f ? folds[f].validation : folds[f].train).push_back(known[i]);
    }
  }
  std::vector<SampleSplit> of_ranks;
  for (const SampleSplit& fold : folds) of_ranks.push_back(ensemble.ranks->RanksOf(fold));
  NS_ASSIGN_OR_RETURN(
      const auto weights,
      FitOneToEach("comm, intervals", ensemble,
                   ConfigForSamples(config, of_ranks.front().train.size()), of_ranks, context));
  UnseenCollectives unseen;
  for (std::size_t f = 0; f < kFolds; ++f) {
    const std::vector<std::int64_t>& left_out = folds[f].validation;
    const std::vector<double> said_ms = ensemble.PredictBy({weights[f]}, left_out).Model();
    unseen.records.insert(unseen.records.end(), left_out.begin(), left_out.end());
    unseen.said_ms.insert(unseen.said_ms.end(), said_ms.begin(), said_ms.end());
  }
  return unseen;
}

// The intervals by collectives that a network had not learned from, each a group. Collectives with
// too few have only the interval of all together, which there is none of where even those are too
// few.
Status CalibrateComm(const OptimizationConfig& config, const FitContext& context,
                     EnsembleFit& fit) {
  UnseenCollectives unseen;
  if (fit.starts.empty()) {
    NS_ASSIGN_OR_RETURN(unseen, LeaveOutInTurn(fit, config, context));
  } else {
    // The network to go on from may have learned from any but the validation samples.
    unseen.records = fit.by_record.validation;
    unseen.said_ms = fit.Predict(unseen.records).Model();
  }
  const CollectiveRanks& ranks = *fit.ranks;
  const EnsemblePredictions said = fit.Predict(unseen.records);
  std::vector<CalibrationValue> all;
  std::map<std::string, std::vector<CalibrationValue>> by_collective;
  for (const std::int64_t record : unseen.records) {
    const std::int64_t count = ranks.first_rank[record + 1] - ranks.first_rank[record];
    for (std::int64_t rank = 0; rank < count; ++rank) {
      const std::size_t at = all.size();
      all.push_back({said.measured_ms[at], unseen.said_ms[at], said.members_ms[at], record,
                     static_cast<int>(count)});
      by_collective[std::string(CollectiveName(ranks.kinds[record]))].push_back(all.back());
    }
  }
  fit.manifest.interval = CalibrateInterval(std::move(all), kIntervalCoverage);
  for (auto& [collective, values] : by_collective) {
    const auto interval = CalibrateInterval(std::move(values), kIntervalCoverage);
    if (interval) fit.manifest.intervals[collective] = *interval;
  }
  return absl::OkStatus();
}

// Collectives that no sample had get no wait and no floor.
void ForgetUnmeasured(const std::vector<CollectiveKind>& kinds, TensorFile& file) {
  for (std::size_t c = 0; c < kCollectiveKinds; ++c) {
    const auto kind = static_cast<CollectiveKind>(c);
    if (std::ranges::find(kinds, kind) != kinds.end()) continue;
    for (auto& [name, tensor] : file.tensors) {
      if (name.ends_with(".wait_scale") || name.ends_with(".floor_ms")) tensor.values[c] = 0;
    }
  }
}

// A part for each collective, and for each of its rank counts where it has several.
std::vector<HeldOutPart> PartsOf(const std::vector<CommRecord>& records, const EnsembleFit& fit) {
  const CollectiveRanks& ranks = *fit.ranks;
  const std::vector<std::int64_t>& test = fit.by_record.test;
  std::vector<HeldOutPart> parts;
  for (std::size_t k = 0; k < kCollectiveKinds; ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    const std::string name(CollectiveName(kind));
    // `count` 0: any.
    const auto add = [&](const std::string& of_part, const std::string& key, std::size_t count) {
      HeldOutPart& part = parts.emplace_back(
          HeldOutPart{of_part, key, {}, fit.manifest.IntervalOf(name), count != 0, count == 0});
      part.counts = [&records, &ranks, kind, count](std::int64_t at) {
        return ranks.kinds[at] == kind &&
               (count == 0 || records[at].sample.dim_sums.size() == count);
      };
      std::copy_if(test.begin(), test.end(), std::back_inserter(part.records), part.counts);
    };
    std::set<std::size_t> counts;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (ranks.kinds[i] == kind) counts.insert(records[i].sample.dim_sums.size());
    }
    if (counts.empty()) continue;
    add(name, KeyOf(kind), 0);
    for (const std::size_t count : counts) {
      if (counts.size() < 2) break;
      add(fmt::format("{} x{}", name, count), fmt::format("{}.ranks_{}", KeyOf(kind), count),
          count);
    }
  }
  return parts;
}

}  // namespace

Status TrainUniversalComm(const std::vector<CommRecord>& records, const TrainingConfig& config,
                          const ModelStart* start, const FitContext& context,
                          TrainingOutcome& outcome) {
  const UniversalCommProblem comm = MakeUniversalComm(records);
  NetworkTask task{NetworkKind::kUniversalComm, [&](const SampleSplit&) { return comm.problem; },
                   SplitComm(records, config.optimization.seed), &config, &comm.ranks};
  if (start != nullptr && start->manifest.comm) {
    task.start = &start->files.at(start->manifest.comm->file);
    task.start_members = start->manifest.comm->members;
  }
  NS_ASSIGN_OR_RETURN(EnsembleFit fit, FitEnsemble(task, context));
  NS_RETURN_IF_ERROR(CalibrateComm(config.comm_optimization, context, fit));
  outcome.manifest.comm = fit.manifest;
  NS_RETURN_IF_ERROR(AddTrained(task, fit, PartsOf(records, fit), context, outcome));
  ForgetUnmeasured(comm.ranks.kinds, outcome.files[fit.manifest.file]);
  return absl::OkStatus();
}

}  // namespace neuroshard
