#include "server/pretrain/data/repeated_samples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

namespace neuroshard {
namespace {

// Positions of equal samples, by first appearance. Only samples with the same hash are compared.
template <typename Record>
std::vector<std::vector<std::size_t>> GroupRepeats(
    const std::vector<Record>& records, const std::function<std::size_t(const Record&)>& hash) {
  const auto same = [](Record a, const Record& b) {
    a.sample.sample_id = b.sample.sample_id;
    return a.sample == b.sample;
  };
  std::vector<std::vector<std::size_t>> groups;
  std::unordered_multimap<std::size_t, std::size_t> group_of;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::size_t key = hash(records[i]);
    const auto [begin, end] = group_of.equal_range(key);
    const auto found = std::find_if(begin, end, [&](const auto& entry) {
      return same(records[groups[entry.second][0]], records[i]);
    });
    if (found != end) {
      groups[found->second].push_back(i);
    } else {
      group_of.emplace(key, groups.size());
      groups.push_back({i});
    }
  }
  return groups;
}

double Median(std::vector<double> values) {
  const std::size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half),
                   values.end());
  if (values.size() % 2 == 1) return values[half];
  const double below =
      *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half));
  return (below + values[half]) / 2;
}

// NaN when a value is (the cost is not known).
template <typename Record, typename Value>
double CostOf(const std::vector<Record>& records, const std::vector<std::size_t>& group,
              SeriesCost cost, Value value) {
  std::vector<double> values;
  for (const std::size_t i : group) values.push_back(value(records[i]));
  for (const double one : values) {
    if (std::isnan(one)) return one;
  }
  if (cost == SeriesCost::kLeast) return *std::ranges::min_element(values);
  return Median(std::move(values));
}

std::size_t Mix(std::size_t hash, std::size_t value) {
  return hash ^ (value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2));
}

std::size_t ComputeHash(const ComputeRecord& record) {
  std::size_t hash = record.sample.seed;
  for (const MeasuredShard& shard : record.sample.shards) {
    hash = Mix(hash, std::hash<std::string>()(shard.table));
    hash = Mix(hash, static_cast<std::size_t>(shard.cols));
  }
  return hash;
}

}  // namespace

std::vector<ComputeRecord> MergeRepeats(std::vector<ComputeRecord> records, SeriesCost cost) {
  const auto groups = GroupRepeats<ComputeRecord>(records, ComputeHash);
  std::vector<ComputeRecord> merged;
  merged.reserve(groups.size());
  for (const auto& group : groups) {
    ComputeRecord record = records[group[0]];
    record.forward_ms = CostOf(records, group, cost, [](const auto& r) { return r.forward_ms; });
    record.backward_ms = CostOf(records, group, cost, [](const auto& r) { return r.backward_ms; });
    record.total_ms = std::isnan(record.forward_ms)
                          ? CostOf(records, group, cost, [](const auto& r) { return r.total_ms; })
                          : record.forward_ms + record.backward_ms;
    merged.push_back(std::move(record));
  }
  return merged;
}

std::vector<CommRecord> MergeRepeats(std::vector<CommRecord> records, SeriesCost cost) {
  const auto groups = GroupRepeats<CommRecord>(records, [](const CommRecord& record) {
    std::size_t hash = static_cast<std::size_t>(record.sample.direction);
    for (const std::int64_t dim_sum : record.sample.dim_sums) {
      hash = Mix(hash, static_cast<std::size_t>(dim_sum));
    }
    return hash;
  });
  std::vector<CommRecord> merged;
  merged.reserve(groups.size());
  for (const auto& group : groups) {
    CommRecord record = records[group[0]];
    for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
      record.cost_ms[rank] =
          CostOf(records, group, cost, [rank](const auto& r) { return r.cost_ms[rank]; });
    }
    merged.push_back(std::move(record));
  }
  return merged;
}

RepeatNoise NoiseOfRepeats(const std::vector<ComputeRecord>& records) {
  RepeatNoise noise;
  double sum = 0;
  std::int64_t pairs = 0;
  for (const auto& group : GroupRepeats<ComputeRecord>(records, ComputeHash)) {
    noise.samples += group.size() > 1;
    for (std::size_t i = 0; i + 1 < group.size(); ++i) {
      const double a = records[group[i]].total_ms;
      const double b = records[group[i + 1]].total_ms;
      if (a + b <= 0) continue;
      sum += std::abs(a - b) / ((a + b) / 2);
      ++pairs;
    }
  }
  if (pairs > 0) noise.mape_percent = 100 * sum / static_cast<double>(pairs) / std::sqrt(2.0);
  return noise;
}

}  // namespace neuroshard
