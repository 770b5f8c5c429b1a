#include "server/pretrain/train/comm_calibration.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "server/cost/comm_features.h"

namespace neuroshard {
namespace {

constexpr std::size_t kFolds = 5;

}  // namespace

StatusOr<UnseenCollectives> LeaveOutInTurn(const EnsembleFit& ensemble,
                                           const CollectiveRanks& ranks,
                                           const SampleSplit& by_record,
                                           const OptimizationConfig& config,
                                           const FitContext& context) {
  std::vector<std::int64_t> known = by_record.train;
  known.insert(known.end(), by_record.validation.begin(), by_record.validation.end());
  std::sort(known.begin(), known.end());
  Random(config.seed).Shuffle(known);
  std::vector<SampleSplit> folds(kFolds);
  for (std::size_t i = 0; i < known.size(); ++i) {
    for (std::size_t f = 0; f < kFolds; ++f) {
      (i % kFolds == f ? folds[f].validation : folds[f].train).push_back(known[i]);
    }
  }
  std::vector<SampleSplit> of_ranks;
  for (const SampleSplit& fold : folds) of_ranks.push_back(ranks.RanksOf(fold));
  NS_ASSIGN_OR_RETURN(
      const auto weights,
      FitOneToEach("comm, intervals", ensemble,
                   ConfigForSamples(config, of_ranks.front().train.size()), of_ranks, context));
  UnseenCollectives unseen;
  for (std::size_t f = 0; f < kFolds; ++f) {
    const std::vector<std::int64_t>& left_out = folds[f].validation;
    const std::vector<double> said_ms =
        PredictEnsemble(ensemble.problem, ensemble.network, {weights[f]}, ranks.RanksOf(left_out))
            .Model();
    unseen.records.insert(unseen.records.end(), left_out.begin(), left_out.end());
    unseen.said_ms.insert(unseen.said_ms.end(), said_ms.begin(), said_ms.end());
  }
  return unseen;
}

CommCalibration CalibrateComm(const EnsembleFit& ensemble, const CollectiveRanks& ranks,
                              const UnseenCollectives& unseen) {
  const EnsemblePredictions said = ensemble.Predict(ranks.RanksOf(unseen.records));
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
  CommCalibration calibration;
  calibration.all = CalibrateInterval(std::move(all), kIntervalCoverage);
  for (auto& [collective, values] : by_collective) {
    const auto interval = CalibrateInterval(std::move(values), kIntervalCoverage);
    if (interval) calibration.by_collective[collective] = *interval;
  }
  return calibration;
}

}  // namespace neuroshard
