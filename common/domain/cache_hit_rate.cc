#include "common/domain/cache_hit_rate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
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

double InBatch(const RowClass& row) { return -std::expm1(-row.mean_lookups); }

double DistinctIds(const std::vector<RowClass>& classes) {
  double distinct = 0;
  for (const RowClass& row : classes) distinct += row.rows * InBatch(row);
  return distinct;
}

// The exponent of a power law over all rows with as many distinct ids, in [0, kMaxExponent].
constexpr double kMaxExponent = 4;
double ExponentOf(double rows, double ids, double distinct) {
  const std::vector<RankRange> ranges = RankRanges(0, rows);
  double low = 0, high = kMaxExponent;
  if (DistinctIds(PowerLaw(ranges, low, ids)) <= distinct) return low;
  for (int i = 0; i < 20; ++i) {
    const double middle = 0.5 * (low + high);
    (DistinctIds(PowerLaw(ranges, middle, ids)) > distinct ? low : high) = middle;
  }
  return low;
}

// Mean count of the ids of each bin.
const std::array<double, kReuseBins>& MeanCounts() {
  static const auto means = [] {
    std::array<double, kReuseBins> values{};
    for (int bin = 0; bin < kReuseBins; ++bin) {
      double first = 0, second = 0;  // sums of 1 / count and 1 / count^2
      for (int count = (1 << bin) / 2 + 1; count <= 1 << bin; ++count) {
        first += 1.0 / count;
        second += 1.0 / count / count;
      }
      values[bin] = first / second;
    }
    return values;
  }();
  return means;
}

std::vector<RowClass> ClassesOf(const ReuseHistogram& histogram, double rows, double ids) {
  ReuseHistogram shares = histogram;
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (sum > 0) {
    for (double& share : shares) share /= sum;
  } else {
    shares[0] = 1;
  }
  const std::array<double, kReuseBins>& means = MeanCounts();
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
  CacheHits hits{.distinct_ids = DistinctIds(classes)};
  if (load_factor <= 0) return hits;
  if (load_factor >= 1) {
    hits.hit_rate = 1;
    return hits;
  }

  const double slots = load_factor * all_rows;
  const bool holds_batch = slots >= hits.distinct_ids;
  const auto held_share = [&](const RowClass& row, double x) {
    if (holds_batch) return -std::expm1(-row.mean_lookups * x);
    const double taken = InBatch(row) * x;
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
  for (const RowClass& row : classes) found += row.rows * InBatch(row) * held_share(row, x);
  hits.hit_rate = std::min(found, slots) / hits.distinct_ids;
  hits.hit_rate = std::min(hits.hit_rate, 1.0);
  return hits;
}

}  // namespace

std::vector<RowClass> RowClassesOf(const ReuseHistogram& histogram, std::int64_t rows, double ids) {
  return ClassesOf(histogram, static_cast<double>(rows), ids);
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
    classes = ClassesOf(histogram, all_rows, ids);
    lookups = asked;
    known.clear();
  }
  for (const auto& [factor, hits] : known) {
    if (factor == load_factor) return hits;
  }
  constexpr std::size_t kMostKnown = 32;
  if (known.size() == kMostKnown) known.clear();
  known.emplace_back(load_factor, HitsOf(classes, all_rows, load_factor));
  return known.back().second;
}

}  // namespace neuroshard
