// For tests: histograms of ids that were drawn, and of Zipf's law.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/domain/reuse_histogram.h"

namespace neuroshard {

// The histogram of the given ids, which are the ids of one batch in any order. All zero when there
// are none.
inline ReuseHistogram MeasureReuseHistogram(std::span<const std::int64_t> ids) {
  ReuseHistogram histogram{};
  if (ids.empty()) return histogram;
  std::vector<std::int64_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  double distinct = 0;
  for (auto run = sorted.begin(); run != sorted.end();) {
    const auto end = std::upper_bound(run, sorted.end(), *run);
    histogram[ReuseBin(end - run)] += 1;
    distinct += 1;
    run = end;
  }
  for (double& share : histogram) share /= distinct;
  return histogram;
}

// ZipfHistograms of one table.
inline ReuseHistogram ZipfReuseHistogram(std::int64_t rows, std::int64_t num_ids, double exponent) {
  return ZipfHistograms(exponent).Of(rows, num_ids);
}

}  // namespace neuroshard
