// Training problems of the NeuroShard paper's networks, from measurements.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"
#include "common/store/profile_store.h"
#include "server/cost/feature_columns.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/data/training_problem.h"

namespace neuroshard {

// Makes a problem with a row per distinct shard. It has two outputs, forward and backward, when
// `outputs` is auto and every record has both; otherwise the total. INVALID_ARGUMENT when a sample
// has no shard.
StatusOr<TrainingProblem> MakeComputeProblem(std::span<const ComputeRecord> records,
                                             const std::vector<std::string>& features,
                                             const FeatureColumns& columns, ComputeOutputs outputs);

// Makes the problem of one direction and rank count: inputs are dim sums and, forward, start
// offsets (ms), with an output per rank. Ranks are interchangeable when all environments name one
// host and one device.
TrainingProblem MakeCommProblem(std::span<const CommRecord> records, CommDirection direction,
                                int num_ranks);

// Returns the rank counts that occur in either direction, ascending.
std::vector<int> RankCounts(std::span<const CommRecord> records);

}  // namespace neuroshard
