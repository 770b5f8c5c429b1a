#include "common/domain/expected_lookups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

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

double MeanCount(const ReuseHistogram& shares, const ReuseHistogram& means) {
  return std::inner_product(shares.begin(), shares.end(), means.begin(), 0.0);
}

// `means`: of the ids of each bin. The classes of the bins from the second on come first, the
// highest last of them.
std::vector<RowClass> ClassesOf(const ReuseHistogram& shares, const ReuseHistogram& means,
                                double rows, double ids) {
  const double mean = MeanCount(shares, means);
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

// The exponent of Zipf's law, by how the rows of the bins before fall: those that occur more often
// than 2^k are 2^(1 / exponent) as many as those of 2^(k + 1).
double OpenBinExponent(const ReuseHistogram& shares) {
  constexpr int kBins = 3;
  const double open = shares[kOpenBin];
  const double from_before = std::accumulate(shares.end() - 1 - kBins, shares.end(), 0.0);
  if (open <= 0 || from_before <= open) return 1;
  return std::clamp(kBins / std::log2(from_before / open), 0.5, 2.0);
}

// RowClassesOf with the rows of the histogram's open bin apart, which says of R rows only that each
// occurs more than c = 2^15 times: they follow Zipf's law, the k-th of them c (R / k)^exponent
// times, with the exponent of the three bins before (in [0.5, 2]; 1 without any). For what rests on
// the hottest rows.
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
  const auto top = std::ranges::max_element(classes, {}, &RowClass::mean_lookups);
  if (hottest <= 1 || top->rows <= 1) return classes;
  const std::vector<RowClass> apart =
      PowerLaw(RankRanges(0, top->rows), exponent, top->rows * top->mean_lookups);
  classes.erase(top);
  classes.insert(classes.end(), apart.begin(), apart.end());
  return classes;
}

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

// `histogram` with more of its highest bin, so that ids occur `surplus` times as often.
ReuseHistogram WithHotterRows(ReuseHistogram histogram, double surplus) {
  const double sum = std::accumulate(histogram.begin(), histogram.end(), 0.0);
  if (sum <= 0) return histogram;
  int top = kReuseBins - 1;
  while (histogram[top] == 0) --top;
  for (double& share : histogram) share /= sum;
  const double mean = MeanCount(histogram, MeanReuseCounts());
  const double highest = MeanReuseCounts()[top];
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

// Where an increasing function of a positive number reaches `target`, within [low, high].
template <typename Function>
double Solve(Function function, double target, double low, double high) {
  for (int i = 0; i < 50 && high > low * (1 + 1e-6); ++i) {
    const double middle = std::sqrt(low * high);
    (function(middle) < target ? low : high) = middle;
  }
  return low;
}

// A table's lookups, which are asked for with one load factor after the other.
struct Lookups {
  ReuseHistogram histogram{};
  std::int64_t rows = 0;
  double ids = 0;

  bool operator==(const Lookups&) const = default;
};

CacheHits HitsOf(const std::vector<RowClass>& classes, double all_rows, double load_factor) {
  CacheHits hits{.distinct_ids = DistinctIdsOf(classes)};
  if (load_factor <= 0) return hits;
  if (load_factor >= 1) {
    hits.hit_rate = 1;
    return hits;
  }

  const double slots = load_factor * all_rows;
  const bool holds_batch = slots >= hits.distinct_ids;
  const auto held_share = [&](const RowClass& row, double x) {
    if (holds_batch) return -std::expm1(-row.mean_lookups * x);
    const double taken = row.in_batch() * x;
    return taken / (std::exp(-row.mean_lookups) + taken);
  };
  const auto held_rows = [&](double x) {
    double held = 0;
    for (const RowClass& row : classes) held += row.rows * held_share(row, x);
    return held;
  };
  const double x =
      holds_batch ? Solve(held_rows, slots, 1, 1e30) : Solve(held_rows, slots, 1e-30, 1);
  double found = 0;
  for (const RowClass& row : classes) found += row.rows * row.in_batch() * held_share(row, x);
  hits.hit_rate = std::min(found, slots) / hits.distinct_ids;
  hits.hit_rate = std::min(hits.hit_rate, 1.0);
  return hits;
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

CacheHits ExpectedCacheHits(const ReuseHistogram& histogram, std::int64_t rows, double ids,
                            double load_factor) {
  if (ids <= 0) return {};
  // What was asked last: all shards of a table in a residency ask the same, one after the other.
  thread_local Lookups lookups;
  thread_local std::vector<RowClass> classes;
  thread_local std::vector<std::pair<double, CacheHits>> known;  // by load factor
  const double all_rows = static_cast<double>(rows);
  const Lookups asked = {histogram, rows, ids};
  if (asked != lookups || classes.empty()) {
    classes = RowClassesOf(histogram, rows, ids);
    lookups = asked;
    known.clear();
  }
  for (const auto& [factor, hits] : known) {
    if (factor == load_factor) return hits;
  }
  constexpr std::size_t kMaxKnownHits = 32;
  if (known.size() == kMaxKnownHits) known.clear();
  known.emplace_back(load_factor, HitsOf(classes, all_rows, load_factor));
  return known.back().second;
}

HottestRowBlock ExpectedHottestRowBlock(const ReuseHistogram& histogram, std::int64_t rows,
                                        double ids, int blocks) {
  if (blocks == 1) return {1, histogram};
  // Searches ask the same for every width of a table's blocks.
  using Question = std::tuple<ReuseHistogram, std::int64_t, double, int>;
  thread_local std::map<Question, HottestRowBlock> known;
  constexpr std::size_t kMaxKnownBlocks = 1024;
  if (known.size() >= kMaxKnownBlocks) known.clear();
  const auto [entry, is_new] = known.try_emplace(Question(histogram, rows, ids, blocks));
  if (is_new) entry->second = Expected(histogram, rows, ids, blocks);
  return entry->second;
}

}  // namespace neuroshard
