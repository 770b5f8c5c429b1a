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

// One row per distinct shard. Two outputs, forward and backward, when `outputs` is auto and every
// record tells them apart; otherwise the total. INVALID_ARGUMENT when a sample has no shard.
StatusOr<TrainingProblem> MakeComputeProblem(std::span<const ComputeRecord> records,
                                             const std::vector<std::string>& features,
                                             const FeatureColumns& columns, ComputeOutputs outputs);

// The samples of one direction and rank count: dim sums, then for the forward direction start
// offsets (ms); one output a rank. The ranks count as interchangeable when all environments name
// one host and one device.
TrainingProblem MakeCommProblem(std::span<const CommRecord> records, CommDirection direction,
                                int num_ranks);

// Rank counts that occur in either direction, ascending.
std::vector<int> RankCounts(std::span<const CommRecord> records);

}  // namespace neuroshard
