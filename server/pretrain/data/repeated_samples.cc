#include "server/pretrain/data/repeated_samples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>

#include "server/pretrain/data/record_split.h"

namespace neuroshard {
namespace {

// Positions of equal samples, by first appearance. Only samples of the same content are compared.
template <typename Record>
std::vector<std::vector<std::size_t>> GroupRepeats(const std::vector<Record>& records) {
  const auto same = [](Record a, const Record& b) {
    a.sample.sample_id = b.sample.sample_id;
    return a.sample == b.sample;
  };
  std::vector<std::vector<std::size_t>> groups;
  std::unordered_multimap<std::string, std::size_t> group_of;
  for (std::size_t i = 0; i < records.size(); ++i) {
    std::string content = ContentOf(records[i]);
    const auto [begin, end] = group_of.equal_range(content);
    const auto found = std::find_if(begin, end, [&](const auto& entry) {
      return same(records[groups[entry.second][0]], records[i]);
    });
    if (found != end) {
      groups[found->second].push_back(i);
    } else {
      group_of.emplace(std::move(content), groups.size());
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

}  // namespace

std::vector<ComputeRecord> MergeRepeats(std::vector<ComputeRecord> records, SeriesCost cost) {
  const auto groups = GroupRepeats(records);
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
  const auto groups = GroupRepeats(records);
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
  for (const auto& group : GroupRepeats(records)) {
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
