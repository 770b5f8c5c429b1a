#include "server/pretrain/data/measured_problem.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "common/base/positions.h"
#include "server/cost/compute_features.h"
#include "server/cost/shard_features.h"

namespace neuroshard {
namespace {

constexpr double kFloorShare = 0.001;  // of the median cost: below it errors are not relative
constexpr double kMinUnitMs = 1e-9;

// Adds samples whose rows are their distinct shards. `fill` gives a shard's row, or says that
// it has none.
template <typename Fill>
void AddShardSets(std::span<const ComputeRecord> records, Fill fill, TrainingProblem& problem) {
  std::map<std::vector<double>, std::int64_t> row_of;
  std::vector<double> values(problem.columns.size());
  problem.sample_begin = {0};
  for (const ComputeRecord& record : records) {
    for (const MeasuredShard& shard : record.sample.shards) {
      if (!fill(record, shard, values)) continue;
      const auto [found, added] =
          row_of.try_emplace(values, static_cast<std::int64_t>(row_of.size()));
      if (added) problem.rows.insert(problem.rows.end(), values.begin(), values.end());
      problem.sample_rows.push_back(found->second);
    }
    problem.sample_begin.push_back(std::ssize(problem.sample_rows));
  }
}

void AddComputeTargets(const ComputeRecord& record, TrainingProblem& problem) {
  if (problem.outputs == 1) {
    problem.targets.push_back(static_cast<float>(record.total_ms));
    problem.weights.push_back(1);
    return;
  }
  const bool known = record.is_split();
  problem.targets.push_back(static_cast<float>(known ? record.forward_ms : record.total_ms));
  problem.targets.push_back(known ? static_cast<float>(record.backward_ms) : 0);
  problem.weights.insert(problem.weights.end(), 2, known ? 1.0f : 0.0f);
  problem.weights.push_back(1);
}

}  // namespace

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
  for (const ComputeRecord& record : records) {
    if (record.sample.shards.empty()) {
      return InvalidArgument("compute sample {} has no shard", record.sample.sample_id);
    }
    AddComputeTargets(record, problem);
  }
  const auto fill = [&](const ComputeRecord& /*record*/, const MeasuredShard& shard,
                        std::span<double> values) {
    columns.Fill(FeaturesOf(shard), values);
    return true;
  };
  AddShardSets(records, fill, problem);
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

TrainingProblem MakeUniversalCompute(std::span<const ComputeRecord> records,
                                     std::span<const std::int64_t> train, double cache_bytes) {
  TrainingProblem problem;
  problem.name = "compute";
  const auto names = ComputeFeatureNames();
  problem.columns.assign(names.begin(), names.end());
  double sum = 0;
  for (const std::int64_t at : train) sum += records[at].total_ms;
  const double unit_ms =
      std::max(kMinUnitMs, sum / static_cast<double>(std::max<std::size_t>(1, train.size())));
  std::vector<double> totals = Mapped<double>(records, &ComputeRecord::total_ms);
  problem.floor_ms = std::max(kMinUnitMs * unit_ms, kFloorShare * UpperMedian(std::move(totals)));
  const bool split = std::ranges::any_of(records, &ComputeRecord::is_split);
  problem.outputs = split ? 2 : 1;
  problem.total_counts = split;
  problem.scale.assign(problem.outputs, unit_ms);
  const auto fill = [&](const ComputeRecord& record, const MeasuredShard& shard,
                        std::span<double> values) {
    if (shard.rows == 0) return false;  // its phi is 0
    ComputeFeaturesOf(ConditionsOf(record.sample), FeaturesOf(shard), cache_bytes, values);
    return true;
  };
  AddShardSets(records, fill, problem);
  for (const ComputeRecord& record : records) AddComputeTargets(record, problem);
  return problem;
}

CollectiveKind KindOf(const CommSample& sample) {
  if (const auto kind = CollectiveFromName(ToText(sample.collective))) return *kind;
  return sample.direction == CommDirection::kForward ? CollectiveKind::kAllToAllForward
                                                     : CollectiveKind::kAllToAllBackward;
}

std::vector<HostRanks> HostsOf(const CommRecord& record) {
  std::vector<HostRanks> hosts;
  for (std::size_t rank = 0; rank < record.environments.size(); ++rank) {
    const bool same =
        rank > 0 && record.environments[rank].hostname == record.environments[rank - 1].hostname;
    if (!same) hosts.push_back({static_cast<int>(rank), 0});
    ++hosts.back().count;
  }
  return hosts;
}

double UpperMedian(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<std::int64_t> CollectiveRanks::RanksOf(const std::vector<std::int64_t>& records) const {
  std::vector<std::int64_t> ranks;
  for (const std::int64_t record : records) {
    for (auto r = first_rank[record]; r < first_rank[record + 1]; ++r) ranks.push_back(r);
  }
  return ranks;
}

SampleSplit CollectiveRanks::RanksOf(const SampleSplit& records) const {
  return {RanksOf(records.train), RanksOf(records.validation), RanksOf(records.test)};
}

std::vector<int> CollectiveRanks::CountsOf(const std::vector<std::int64_t>& records) const {
  std::vector<int> counts;
  for (const std::int64_t record : records) {
    const auto ranks = static_cast<std::size_t>(first_rank[record + 1] - first_rank[record]);
    counts.insert(counts.end(), ranks, static_cast<int>(ranks));
  }
  return counts;
}

UniversalCommProblem MakeUniversalComm(std::span<const CommRecord> records) {
  UniversalCommProblem result;
  TrainingProblem& problem = result.problem;
  problem.name = "comm";
  const auto names = CommFeatureNames();
  problem.columns.assign(names.begin(), names.end());
  problem.sample_columns = static_cast<std::int64_t>(2 * kCollectiveKinds);
  std::vector<double> costs;
  for (const CommRecord& record : records) {
    costs.insert(costs.end(), record.cost_ms.begin(), record.cost_ms.end());
  }
  const double unit_ms = std::max(kMinUnitMs, UpperMedian(std::move(costs)));
  problem.scale = {unit_ms};
  problem.floor_ms = kFloorShare * unit_ms;
  result.ranks.first_rank = {0};
  std::vector<CommFeatureRow> rows;
  std::vector<double> bytes;
  std::vector<double> wait_ms;
  for (const CommRecord& record : records) {
    const CommSample& sample = record.sample;
    const std::size_t ranks = sample.dim_sums.size();
    const CollectiveKind kind = KindOf(sample);
    bytes.clear();
    for (const std::int64_t dim_sum : sample.dim_sums) {
      bytes.push_back(static_cast<double>(dim_sum) * static_cast<double>(sample.batch_size) *
                      static_cast<double>(sample.element_bytes));
    }
    rows.resize(ranks);
    wait_ms.resize(ranks);
    CommFeaturesOf(CommLayout(static_cast<int>(ranks), HostsOf(record)), kind, bytes,
                   sample.start_offsets_ms, rows, wait_ms);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      problem.rows.insert(problem.rows.end(), rows[rank].begin(), rows[rank].end());
      std::vector<float> known(2 * kCollectiveKinds, 0.0f);
      known[static_cast<std::size_t>(kind)] = static_cast<float>(wait_ms[rank] / unit_ms);
      known[kCollectiveKinds + static_cast<std::size_t>(kind)] = 1;
      problem.sample_values.insert(problem.sample_values.end(), known.begin(), known.end());
      problem.targets.push_back(static_cast<float>(record.cost_ms[rank]));
    }
    result.ranks.first_rank.push_back(static_cast<std::int64_t>(problem.targets.size()));
    result.ranks.kinds.push_back(kind);
  }
  problem.weights.assign(problem.targets.size(), 1.0f);
  problem.sample_rows = Positions<std::int64_t>(problem.targets.size());
  problem.sample_begin = Positions<std::int64_t>(problem.targets.size() + 1);
  return result;
}

}  // namespace neuroshard
