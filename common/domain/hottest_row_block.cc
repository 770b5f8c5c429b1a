#include "common/domain/hottest_row_block.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "common/domain/row_classes.h"

namespace neuroshard {
namespace {

// The bound of E max at `t`, of rows whose mean_lookups are shares.
double BoundAt(const std::vector<RowClass>& classes, double blocks, double t) {
  double sum = std::log(blocks);
  for (const RowClass& row : classes) {
    const double exponent = t * row.mean_lookups;
    constexpr double kLargest = 500;  // of exp
    sum += row.rows * (exponent < kLargest ? std::log1p(std::expm1(exponent) / blocks)
                                           : exponent - std::log(blocks));
  }
  return sum / t;
}

// The least bound, which has one minimum in t: golden section over its logarithm.
double LeastBound(const std::vector<RowClass>& classes, double blocks) {
  constexpr double kGolden = 0.6180339887498949;
  double low = std::log(0.1), high = std::log(1e13);
  double first = high - kGolden * (high - low), second = low + kGolden * (high - low);
  double at_first = BoundAt(classes, blocks, std::exp(first));
  double at_second = BoundAt(classes, blocks, std::exp(second));
  while (high - low > 1e-3) {
    if (at_first < at_second) {
      high = second;
      second = first;
      at_second = at_first;
      first = high - kGolden * (high - low);
      at_first = BoundAt(classes, blocks, std::exp(first));
    } else {
      low = first;
      first = second;
      at_first = at_second;
      second = low + kGolden * (high - low);
      at_second = BoundAt(classes, blocks, std::exp(second));
    }
  }
  return std::min(at_first, at_second);
}

double MeanCount(const ReuseHistogram& shares) {
  const ReuseHistogram& means = MeanReuseCounts();
  return std::inner_product(shares.begin(), shares.end(), means.begin(), 0.0);
}

// `histogram` with more of its highest bin, so that ids occur `surplus` times as often.
ReuseHistogram WithHotterRows(ReuseHistogram histogram, double surplus) {
  const double sum = std::accumulate(histogram.begin(), histogram.end(), 0.0);
  if (sum <= 0) return histogram;
  int top = kReuseBins - 1;
  while (histogram[top] == 0) --top;
  for (double& share : histogram) share /= sum;
  const double mean = MeanCount(histogram), highest = MeanReuseCounts()[top];
  if (highest <= mean * surplus) {
    histogram = {};
    histogram[top] = 1;
    return histogram;
  }
  const double moved = mean * (surplus - 1) / (highest - mean);
  for (double& share : histogram) share *= 1 - moved;
  histogram[top] += moved;
  return histogram;
}

HottestRowBlock Expected(const ReuseHistogram& histogram, std::int64_t rows, double ids,
                         int blocks) {
  std::vector<RowClass> classes = RowClassesWithHottest(histogram, rows, ids);
  for (RowClass& row : classes) row.mean_lookups /= ids;
  const double even = 1.0 / blocks;
  const double share = std::clamp(LeastBound(classes, blocks), even, 1.0);
  return {share, WithHotterRows(histogram, share / even)};
}

}  // namespace

HottestRowBlock ExpectedHottestRowBlock(const ReuseHistogram& histogram, std::int64_t rows,
                                        double ids, int blocks) {
  if (blocks == 1) return {1, histogram};
  // Searches ask the same for every width of a table's blocks.
  using Question = std::tuple<ReuseHistogram, std::int64_t, double, int>;
  thread_local std::map<Question, HottestRowBlock> known;
  constexpr std::size_t kMostKnown = 1024;
  if (known.size() >= kMostKnown) known.clear();
  const auto [entry, is_new] = known.try_emplace(Question(histogram, rows, ids, blocks));
  if (is_new) entry->second = Expected(histogram, rows, ids, blocks);
  return entry->second;
}

}  // namespace neuroshard
