#include "server/pretrain/universal_problem.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>

#include "server/cost/compute_features.h"
#include "server/features/shard_features.h"

namespace neuroshard {
namespace {

constexpr double kFloorShare = 0.001;  // of the median cost: below it errors are not relative
constexpr double kLeastUnitMs = 1e-9;

double MedianOfCosts(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool TellsApart(const ComputeRecord& record) {
  return std::isfinite(record.forward_ms) && std::isfinite(record.backward_ms);
}

void AddComputeTargets(const ComputeRecord& record, double unit_ms, FitProblem& fit) {
  const auto in_units = [&](double ms) { return static_cast<float>(ms / unit_ms); };
  if (fit.outputs == 1) {
    fit.targets.push_back(in_units(record.total_ms));
    fit.weights.push_back(1);
    return;
  }
  const bool known = TellsApart(record);
  fit.targets.push_back(in_units(known ? record.forward_ms : record.total_ms));
  fit.targets.push_back(known ? in_units(record.backward_ms) : 0);
  fit.weights.insert(fit.weights.end(), 2, known ? 1.0f : 0.0f);
  fit.weights.push_back(1);
}

}  // namespace

void UniversalProblem::Standardise(std::span<const std::int64_t> train_samples,
                                   const Standardisation* given) {
  if (given != nullptr) {
    standardisation = *given;
  } else {
    std::vector<char> used(fit.rows.size() / feature_names.size(), 0);
    for (const std::int64_t sample : train_samples) {
      for (auto i = fit.sample_begin[sample]; i < fit.sample_begin[sample + 1]; ++i) {
        used[fit.sample_rows[i]] = 1;
      }
    }
    standardisation = MeasureColumns(fit.rows, fit.row_columns, used);
  }
  fit.rows = standardisation.Apply(fit.rows);
}

UniversalProblem MakeUniversalCompute(std::span<const ComputeRecord> records,
                                      std::span<const std::int64_t> train, double cache_bytes) {
  UniversalProblem problem;
  FitProblem& fit = problem.fit;
  const auto names = ComputeFeatureNames();
  problem.feature_names.assign(names.begin(), names.end());
  fit.row_columns = static_cast<std::int64_t>(names.size());
  double sum = 0;
  for (const std::int64_t at : train) sum += records[at].total_ms;
  problem.unit_ms =
      std::max(kLeastUnitMs, sum / static_cast<double>(std::max<std::size_t>(1, train.size())));
  std::vector<double> totals;
  for (const ComputeRecord& record : records) totals.push_back(record.total_ms);
  fit.loss = FitLoss::kLogRatio;
  fit.floor = static_cast<float>(
      std::max(kLeastUnitMs, kFloorShare * MedianOfCosts(std::move(totals)) / problem.unit_ms));
  const bool split = std::any_of(records.begin(), records.end(), TellsApart);
  fit.outputs = split ? 2 : 1;
  fit.total_counts = split;
  fit.scale.assign(fit.outputs, 1.0f);
  fit.sample_begin = {0};
  std::map<std::vector<double>, std::int64_t> row_of;
  std::vector<double> values(names.size());
  for (const ComputeRecord& record : records) {
    const PricingConditions conditions = ConditionsOf(record.sample);
    for (const MeasuredShard& shard : record.sample.shards) {
      if (shard.rows == 0) continue;  // its phi is 0
      ComputeFeaturesOf(conditions, FeaturesOf(shard), cache_bytes, values);
      const auto [found, added] =
          row_of.try_emplace(values, static_cast<std::int64_t>(row_of.size()));
      if (added) fit.rows.insert(fit.rows.end(), values.begin(), values.end());
      fit.sample_rows.push_back(found->second);
    }
    fit.sample_begin.push_back(static_cast<std::int64_t>(fit.sample_rows.size()));
    AddComputeTargets(record, problem.unit_ms, fit);
  }
  return problem;
}

CollectiveKind KindOf(const CommSample& sample) {
  switch (sample.collective) {
    case Collective::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case Collective::kAllGather:
      return CollectiveKind::kAllGather;
    case Collective::kAllReduce:
      return CollectiveKind::kAllReduce;
    default:
      return sample.direction == CommDirection::kForward ? CollectiveKind::kAllToAllForward
                                                         : CollectiveKind::kAllToAllBackward;
  }
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

std::vector<std::int64_t> UniversalCommProblem::RanksOf(
    const std::vector<std::int64_t>& records) const {
  std::vector<std::int64_t> ranks;
  for (const std::int64_t record : records) {
    for (auto r = first_rank[record]; r < first_rank[record + 1]; ++r) ranks.push_back(r);
  }
  return ranks;
}

SampleSplit UniversalCommProblem::RanksOf(const SampleSplit& records) const {
  return {RanksOf(records.train), RanksOf(records.validation), RanksOf(records.test)};
}

UniversalCommProblem MakeUniversalComm(std::span<const CommRecord> records) {
  UniversalCommProblem result;
  UniversalProblem& problem = result.problem;
  FitProblem& fit = problem.fit;
  const auto names = CommFeatureNames();
  problem.feature_names.assign(names.begin(), names.end());
  fit.row_columns = static_cast<std::int64_t>(kCommFeatures);
  fit.sample_columns = static_cast<std::int64_t>(2 * kCollectiveKinds);
  fit.scale = {1};
  fit.loss = FitLoss::kLogRatio;
  fit.floor = static_cast<float>(kFloorShare);
  std::vector<double> costs;
  for (const CommRecord& record : records) {
    costs.insert(costs.end(), record.cost_ms.begin(), record.cost_ms.end());
  }
  problem.unit_ms = std::max(kLeastUnitMs, MedianOfCosts(std::move(costs)));
  result.first_rank = {0};
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
      fit.rows.insert(fit.rows.end(), rows[rank].begin(), rows[rank].end());
      std::vector<float> known(2 * kCollectiveKinds, 0.0f);
      known[static_cast<std::size_t>(kind)] = static_cast<float>(wait_ms[rank] / problem.unit_ms);
      known[kCollectiveKinds + static_cast<std::size_t>(kind)] = 1;
      fit.sample_values.insert(fit.sample_values.end(), known.begin(), known.end());
      fit.targets.push_back(static_cast<float>(record.cost_ms[rank] / problem.unit_ms));
    }
    result.first_rank.push_back(static_cast<std::int64_t>(fit.targets.size()));
    result.kinds.push_back(kind);
  }
  fit.weights.assign(fit.targets.size(), 1.0f);
  fit.sample_rows.resize(fit.targets.size());
  std::iota(fit.sample_rows.begin(), fit.sample_rows.end(), std::int64_t{0});
  fit.sample_begin.resize(fit.targets.size() + 1);
  std::iota(fit.sample_begin.begin(), fit.sample_begin.end(), std::int64_t{0});
  return result;
}

}  // namespace neuroshard
