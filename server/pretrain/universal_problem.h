// Measurements under any conditions as the problems that the universal networks learn.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/domain/topology.h"
#include "common/store/profile_store.h"
#include "server/cost/comm_features.h"
#include "server/pretrain/fit/fit_problem.h"
#include "server/pretrain/standardisation.h"
#include "server/pretrain/training_problem.h"

namespace neuroshard {

// Costs are in units of `unit_ms`; rows are raw until Standardise.
struct UniversalProblem {
  FitProblem fit;
  double unit_ms = 1;
  std::vector<std::string> feature_names;
  Standardisation standardisation;

  // Standardises the rows, by `given` or else by what `train_samples` show of them.
  void Standardise(std::span<const std::int64_t> train_samples, const Standardisation* given);
};

// A sample is a shard set, a row a shard at its sample's conditions. Two outputs, forward and
// backward, and their total where some records tell them apart (what a record does not tell does
// not count), otherwise the total. The unit is the mean cost of `train`.
UniversalProblem MakeUniversalCompute(std::span<const ComputeRecord> records,
                                      std::span<const std::int64_t> train, double cache_bytes);

// A sample is a rank of a collective, and one row. first_rank[i] is the first sample of record i;
// the unit is the median cost.
struct UniversalCommProblem {
  UniversalProblem problem;
  std::vector<std::int64_t> first_rank;  // records + 1
  std::vector<CollectiveKind> kinds;     // of each record

  // The samples of records, in their order.
  std::vector<std::int64_t> RanksOf(const std::vector<std::int64_t>& records) const;
  SampleSplit RanksOf(const SampleSplit& records) const;
};
UniversalCommProblem MakeUniversalComm(std::span<const CommRecord> records);

CollectiveKind KindOf(const CommSample& sample);

// Neighbouring ranks on the same host share it; imported records do not say, and are on one.
std::vector<HostRanks> HostsOf(const CommRecord& record);

}  // namespace neuroshard
