// Calibration of the intervals of a universal communication network, collective by collective.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/pretrain/data/universal_problem.h"
#include "server/pretrain/train/ensemble.h"

namespace neuroshard {

// Collectives, with a cost a rank said by a network that had not learned from them.
struct UnseenCollectives {
  std::vector<std::int64_t> records;
  std::vector<double> said_ms;  // rank by rank
};

// The training and validation collectives, a fifth at a time said by a network that learned from
// the other four, as the ensemble's were fitted. Errors of RunFit.
StatusOr<UnseenCollectives> LeaveOutInTurn(const EnsembleFit& ensemble,
                                           const CollectiveRanks& ranks,
                                           const SampleSplit& by_record,
                                           const OptimizationConfig& config,
                                           const FitContext& context);

struct CommCalibration {
  std::optional<IntervalManifest> all;                    // of all collectives together
  std::map<std::string, IntervalManifest> by_collective;  // by CollectiveName
};

// On what CalibrateInterval takes: a collective is a group. Collectives with too few are only in
// `all`, which has nothing where even all of them are too few.
CommCalibration CalibrateComm(const EnsembleFit& ensemble, const CollectiveRanks& ranks,
                              const UnseenCollectives& unseen);

}  // namespace neuroshard
