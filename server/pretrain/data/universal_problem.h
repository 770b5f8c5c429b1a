// Training problems of the universal networks, from measurements under any conditions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/domain/topology.h"
#include "common/store/profile_store.h"
#include "server/cost/comm_features.h"
#include "server/pretrain/data/training_problem.h"

namespace neuroshard {

// A sample is a shard set, a row a shard at its sample's conditions. Two outputs, forward and
// backward, and their total where some records tell them apart (what a record does not tell does
// not count), otherwise the total. The network's unit is the mean cost of `train`.
TrainingProblem MakeUniversalCompute(std::span<const ComputeRecord> records,
                                     std::span<const std::int64_t> train, double cache_bytes);

// Where the ranks of collectives are among the samples of a problem whose samples are ranks.
struct CollectiveRanks {
  std::vector<std::int64_t> first_rank;  // records + 1: the first sample of each record
  std::vector<CollectiveKind> kinds;     // of each record

  // The samples of records, in their order.
  std::vector<std::int64_t> RanksOf(const std::vector<std::int64_t>& records) const;
  SampleSplit RanksOf(const SampleSplit& records) const;
  // Of each of those samples, how many ranks its record has.
  std::vector<int> CountsOf(const std::vector<std::int64_t>& records) const;
};

// A sample is a rank of a collective, and one row. Its sample columns are the wait (in units) in
// the column of its collective, then 1 in the column of its collective, else 0. The network's unit
// is the median cost.
struct UniversalCommProblem {
  TrainingProblem problem;
  CollectiveRanks ranks;
};
UniversalCommProblem MakeUniversalComm(std::span<const CommRecord> records);

CollectiveKind KindOf(const CommSample& sample);

// Neighbouring ranks on the same host share it; imported records do not say, and are on one.
std::vector<HostRanks> HostsOf(const CommRecord& record);

}  // namespace neuroshard
