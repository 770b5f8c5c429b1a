// The parts of a universal training: compute and communication fit an ensemble each, the
// distribution of ids and casts their rates; each adds its section, file and reports to the outcome.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/train/universal_training.h"

namespace neuroshard {

// Records of one kind, the new ones first.
template <typename Record>
struct MergedRecords {
  std::vector<Record> all;
  std::int64_t new_ones = 0;
};

Status TrainUniversalCompute(const MergedRecords<ComputeRecord>& merged,
                             const TrainingConfig& config, const UniversalStart* start,
                             const FitContext& context, TrainingOutcome& outcome);

Status TrainUniversalComm(const std::vector<CommRecord>& records, const TrainingConfig& config,
                          const UniversalStart* start, const FitContext& context,
                          TrainingOutcome& outcome);

// `records` are distributions of ids. Numbers of ranks with too few samples are left out; a warning
// where none has enough.
Status TrainInputDist(const std::vector<CommRecord>& records, const TrainingConfig& config,
                      const FitContext& context, TrainingOutcome& outcome);

// `records` are casts alone (cast_records.h). Rates for each type with enough of them; the
// others stay as they were.
void TrainCasts(const std::vector<CommRecord>& records, const TrainingConfig& config,
                TrainingOutcome& outcome);

}  // namespace neuroshard
