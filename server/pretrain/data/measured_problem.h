// Training problems, from measurements: of the NeuroShard paper's networks, each for one set of
// conditions, and of the universal networks, for any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/topology.h"
#include "common/domain/vocabulary.h"
#include "common/store/profile_store.h"
#include "server/cost/comm_features.h"
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

// Makes a problem whose samples are shard sets and whose rows are shards at their sample's
// conditions. It has two outputs, forward and backward, and their total where some records split
// them (a record without the split counts for the total only), otherwise the total. The unit of the
// network is the mean cost of `train`.
TrainingProblem MakeUniversalCompute(std::span<const ComputeRecord> records,
                                     std::span<const std::int64_t> train, double cache_bytes);

// Positions of the ranks of collectives among the samples of a problem whose samples are ranks.
struct CollectiveRanks {
  std::vector<std::int64_t> first_rank;  // records + 1: the first sample of each record
  std::vector<CollectiveKind> kinds;     // of each record

  // Returns the samples of records, in the records' order.
  std::vector<std::int64_t> RanksOf(const std::vector<std::int64_t>& records) const;
  SampleSplit RanksOf(const SampleSplit& records) const;
  // Returns the rank count of the record of each of those samples.
  std::vector<int> CountsOf(const std::vector<std::int64_t>& records) const;
};

// A problem whose samples, of one row each, are the ranks of collectives. The sample columns hold
// the wait (in units) in the column of the collective, then 1 in the column of the collective, else
// 0. The unit of the network is the median cost.
struct UniversalCommProblem {
  TrainingProblem problem;
  CollectiveRanks ranks;
};
UniversalCommProblem MakeUniversalComm(std::span<const CommRecord> records);

CollectiveKind KindOf(const CommSample& sample);

// Returns the hosts of the ranks: neighbouring ranks on the same host share it; imported records,
// which do not say, are on one.
std::vector<HostRanks> HostsOf(const CommRecord& record);

// Returns the median, the greater of the two in the middle; 0 when there are no values.
double UpperMedian(std::vector<double> values);

}  // namespace neuroshard
