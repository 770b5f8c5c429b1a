#include "common/domain/cache_hit_rate.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/domain/row_classes.h"

namespace neuroshard {
namespace {

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
  constexpr std::size_t kMostKnown = 32;
  if (known.size() == kMostKnown) known.clear();
  known.emplace_back(load_factor, HitsOf(classes, all_rows, load_factor));
  return known.back().second;
}

}  // namespace neuroshard
