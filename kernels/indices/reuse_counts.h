// Counts of the distinct ids of a batch, from the histogram that the batch shall have.
#pragma once

#include <cstdint>
#include <vector>

#include "common/domain/reuse_histogram.h"

namespace neuroshard {

// `ids` distinct ids occur `count` times each.
struct ReuseCount {
  std::int64_t count = 0;
  std::int64_t ids = 0;

  bool operator==(const ReuseCount&) const = default;
};

// Counts (ids >= 1, count >= 1) whose occurrences sum up to exactly `lookups`, of at most `rows`
// distinct ids. lookups and rows at least 1; the histogram's entries are weights, finite, not
// negative and not all zero.
//
// A bin fixes its ids' share and only bounds their counts, so the number of distinct ids is free in
// a range. It is chosen for the mean count that a power law with exponent 2 has within each bin,
// and the counts are then moved within their bins until the sum is exact. Bin k gets round(u *
// share) ids for one real u: each share is met within 9 / (number of distinct ids). What cannot be
// met is approached:
// - shares of bins whose smallest count exceeds `lookups` go to the highest bin that is within
//   reach;
// - more lookups than `rows` ids may have in their bins: all counts grow by one factor;
// - lookups that fall between u and the next larger u go to one id more.
std::vector<ReuseCount> ChooseReuseCounts(const ReuseHistogram& histogram, std::int64_t lookups,
                                          std::int64_t rows);

}  // namespace neuroshard
