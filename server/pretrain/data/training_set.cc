#include "server/pretrain/data/training_set.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "server/cost/shard_features.h"

namespace neuroshard {

StatusOr<TrainingProblem> MakeComputeProblem(std::span<const ComputeRecord> records,
                                             const std::vector<std::string>& features,
                                             const FeatureColumns& columns,
                                             ComputeOutputs outputs) {
  TrainingProblem problem;
  problem.name = "compute";
  problem.columns = features;
  const bool split =
      outputs == ComputeOutputs::kAuto && std::ranges::all_of(records, &ComputeRecord::is_split);
  problem.outputs = split ? 2 : 1;
  problem.total_counts = split;
  problem.sample_begin = {0};
  std::map<std::vector<double>, std::int64_t> row_of;
  std::vector<double> values(features.size());
  for (const ComputeRecord& record : records) {
    if (record.sample.shards.empty()) {
      return InvalidArgument("compute sample {} has no shard", record.sample.sample_id);
    }
    for (const MeasuredShard& shard : record.sample.shards) {
      columns.Fill(FeaturesOf(shard), values);
      const auto [found, added] =
          row_of.try_emplace(values, static_cast<std::int64_t>(row_of.size()));
      if (added) problem.rows.insert(problem.rows.end(), values.begin(), values.end());
      problem.sample_rows.push_back(found->second);
    }
    problem.sample_begin.push_back(static_cast<std::int64_t>(problem.sample_rows.size()));
    if (split) {
      problem.targets.push_back(static_cast<float>(record.forward_ms));
      problem.targets.push_back(static_cast<float>(record.backward_ms));
    } else {
      problem.targets.push_back(static_cast<float>(record.total_ms));
    }
  }
  return problem;
}

TrainingProblem MakeCommProblem(std::span<const CommRecord> records, CommDirection direction,
                                int num_ranks) {
  TrainingProblem problem;
  problem.name = fmt::format("{}_comm x{}", ToText(direction), num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    problem.columns.push_back(fmt::format("dim_sum_{}", rank));
  }
  if (direction == CommDirection::kForward) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      problem.columns.push_back(fmt::format("start_offset_ms_{}", rank));
    }
  }
  problem.outputs = num_ranks;
  problem.sample_begin = {0};
  std::set<std::pair<std::string, std::string>> places;
  bool places_known = true;
  for (const CommRecord& record : records) {
    const CommSample& sample = record.sample;
    if (sample.collective != Collective::kAllToAll || sample.direction != direction ||
        static_cast<int>(sample.dim_sums.size()) != num_ranks) {
      continue;
    }
    for (const auto dim : sample.dim_sums) problem.rows.push_back(static_cast<float>(dim));
    if (direction == CommDirection::kForward) {
      for (int rank = 0; rank < num_ranks; ++rank) {
        const bool together = sample.start_offsets_ms.empty();
        problem.rows.push_back(together ? 0.0f : static_cast<float>(sample.start_offsets_ms[rank]));
      }
    }
    for (const double ms : record.cost_ms) problem.targets.push_back(static_cast<float>(ms));
    problem.sample_rows.push_back(static_cast<std::int64_t>(problem.sample_rows.size()));
    problem.sample_begin.push_back(static_cast<std::int64_t>(problem.sample_rows.size()));
    places_known = places_known && !record.environments.empty();
    for (const MeasurementEnvironment& environment : record.environments) {
      places.insert({environment.hostname, environment.device});
    }
  }
  if (places_known && places.size() == 1) problem.interchangeable_ranks = num_ranks;
  return problem;
}

std::vector<int> RankCounts(std::span<const CommRecord> records) {
  std::set<int> counts;
  for (const CommRecord& record : records) {
    if (record.sample.collective != Collective::kAllToAll) continue;
    counts.insert(static_cast<int>(record.sample.dim_sums.size()));
  }
  return {counts.begin(), counts.end()};
}

}  // namespace neuroshard
