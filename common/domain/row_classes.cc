#include "common/domain/row_classes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace neuroshard {
namespace {

// Ranks that are priced at their middle.
struct RankRange {
  double ranks = 0;
  double log_middle = 0;
};

// Ranges of ranks (first, last] that grow by an eighth.
std::vector<RankRange> RankRanges(double first, double last) {
  std::vector<RankRange> ranges;
  while (first < last) {
    const double end = std::min(last, std::max(first + 1, first + first / 8));
    ranges.push_back({end - first, 0.5 * (std::log(first + 0.5) + std::log(end + 0.5))});
    first = end;
  }
  return ranges;
}

// Rows of the ranges by their power law, `lookups` lookups in all.
std::vector<RowClass> PowerLaw(const std::vector<RankRange>& ranges, double exponent,
                               double lookups) {
  std::vector<RowClass> classes;
  double sum = 0;
  for (const RankRange& range : ranges) {
    const double weight = std::exp(-exponent * (range.log_middle - ranges[0].log_middle));
    classes.push_back({range.ranks, weight});
    sum += range.ranks * weight;
  }
  for (RowClass& row : classes) row.mean_lookups *= lookups / sum;
  return classes;
}

// The exponent of a power law over all rows with as many distinct ids, in [0, kMaxExponent].
constexpr double kMaxExponent = 4;
double ExponentOf(double rows, double ids, double distinct) {
  const std::vector<RankRange> ranges = RankRanges(0, rows);
  double low = 0, high = kMaxExponent;
  if (DistinctIdsOf(PowerLaw(ranges, low, ids)) <= distinct) return low;
  for (int i = 0; i < 20; ++i) {
    const double middle = 0.5 * (low + high);
    (DistinctIdsOf(PowerLaw(ranges, middle, ids)) > distinct ? low : high) = middle;
  }
  return low;
}

// Sums to 1; a histogram without entries stands for ids that occur once.
ReuseHistogram SharesOf(ReuseHistogram histogram) {
  const double sum = std::accumulate(histogram.begin(), histogram.end(), 0.0);
  if (sum <= 0) return {1};
  for (double& share : histogram) share /= sum;
  return histogram;
}

// `means`: of the ids of each bin. The classes of the bins from the second on come first, the
// highest last of them.
std::vector<RowClass> ClassesOf(const ReuseHistogram& shares, const ReuseHistogram& means,
                                double rows, double ids) {
  const double mean = std::inner_product(shares.begin(), shares.end(), means.begin(), 0.0);
  const double distinct = std::min(ids / mean, rows);
  const double scale = ids / (distinct * mean);  // above 1 where every row is looked up

  std::vector<RowClass> classes;
  double often = 0;  // rows looked up twice or more
  for (int bin = 1; bin < kReuseBins; ++bin) {
    if (shares[bin] == 0) continue;
    classes.push_back({distinct * shares[bin], scale * means[bin]});
    often += classes.back().rows;
  }
  const double once = distinct * shares[0] * scale;  // lookups
  const double others = rows - often;
  if (others < 1e-9 * rows || once + 2 * distinct * shares[1] <= 0) return classes;
  if (distinct >= rows) {
    classes.push_back({others, once / others});
    return classes;
  }
  const double left = ids - once, rare = std::min(once + 2 * distinct * shares[1], ids);
  for (RowClass& row : classes) row.mean_lookups *= (ids - rare) / left;
  const std::vector<RowClass> tail =
      PowerLaw(RankRanges(often, rows), ExponentOf(rows, ids, distinct), rare);
  classes.insert(classes.end(), tail.begin(), tail.end());
  return classes;
}

constexpr int kOpenBin = kReuseBins - 1;

// Of Zipf's law, by how the rows of the bins before fall: those that occur more often than 2^k
// are 2^(1 / exponent) as many as those of 2^(k + 1).
double OpenBinExponent(const ReuseHistogram& shares) {
  constexpr int kBins = 3;
  const double open = shares[kOpenBin];
  const double from_before = std::accumulate(shares.end() - 1 - kBins, shares.end(), 0.0);
  if (open <= 0 || from_before <= open) return 1;
  return std::clamp(kBins / std::log2(from_before / open), 0.5, 2.0);
}

}  // namespace

double DistinctIdsOf(const std::vector<RowClass>& classes) {
  double distinct = 0;
  for (const RowClass& row : classes) distinct += row.rows * row.in_batch();
  return distinct;
}

std::vector<RowClass> RowClassesOf(const ReuseHistogram& histogram, std::int64_t rows, double ids) {
  return ClassesOf(SharesOf(histogram), MeanReuseCounts(), static_cast<double>(rows), ids);
}

std::vector<RowClass> RowClassesWithHottest(const ReuseHistogram& histogram, std::int64_t rows,
                                            double ids) {
  const ReuseHistogram shares = SharesOf(histogram);
  const double exponent = OpenBinExponent(shares);
  ReuseHistogram means = MeanReuseCounts();
  // The more often the open bin's rows occur, the fewer of them there are: R is a fixed point.
  const double others =
      std::inner_product(shares.begin(), shares.begin() + kOpenBin, means.begin(), 0.0);
  double hottest = 0;
  for (int i = 0; i < 20 && shares[kOpenBin] > 0; ++i) {
    hottest = shares[kOpenBin] * ids / (others + shares[kOpenBin] * means[kOpenBin]);
    double sum = 0;  // of the rows' counts over c
    for (const RankRange& range : RankRanges(0, hottest)) {
      sum += range.ranks * std::exp(exponent * (std::log(hottest) - range.log_middle));
    }
    means[kOpenBin] = std::max(MeanReuseCounts()[kOpenBin], (1 << (kOpenBin - 1)) * sum / hottest);
  }
  std::vector<RowClass> classes = ClassesOf(shares, means, static_cast<double>(rows), ids);
  const auto top = std::max_element(
      classes.begin(), classes.end(),
      [](const RowClass& a, const RowClass& b) { return a.mean_lookups < b.mean_lookups; });
  if (hottest <= 1 || top->rows <= 1) return classes;
  const std::vector<RowClass> apart =
      PowerLaw(RankRanges(0, top->rows), exponent, top->rows * top->mean_lookups);
  classes.erase(top);
  classes.insert(classes.end(), apart.begin(), apart.end());
  return classes;
}

}  // namespace neuroshard
