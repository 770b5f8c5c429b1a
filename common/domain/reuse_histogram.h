// Reuse histogram: how often the distinct ids of one global batch occur (NeuroShard, section 3 and
// the released input generation).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace neuroshard {

// Entry 0: share of distinct ids that occur once; entry k: 2^(k-1) < count <= 2^k; entry 16: count
// > 2^15. Sums to 1.
inline constexpr int kReuseBins = 17;
using ReuseHistogram = std::array<double, kReuseBins>;

// The bin that an id occurring `count` (>= 1) times falls into.
int ReuseBin(std::int64_t count);

// Mean count of the ids of each bin, by a density ~ count^-2.
const ReuseHistogram& MeanReuseCounts();

// What p(k) ~ k^-exponent over `rows` rows gives in expectation when `num_ids` ids are drawn;
// exponent 0 is uniform. Tables with one exponent have most of the work in common: it is done once.
// For one thread.
class ZipfHistograms {
 public:
  explicit ZipfHistograms(double exponent) : exponent_(exponent) {}

  ReuseHistogram Of(std::int64_t rows, std::int64_t num_ids);

 private:
  // Rows with neighbouring ranks, from 1 on, and the weight of the one in their middle.
  struct Group {
    double rows;
    double weight;
  };

  Group GroupOf(std::int64_t begin, std::int64_t end) const;
  // The groups of so many rows; all but the last are of any number of rows that is no less.
  std::vector<Group> GroupsUpTo(std::int64_t rows);

  const double exponent_;
  std::vector<Group> whole_groups_;
};

// Assumed when a request states neither: the mean over the 856 public tables of the DLRM 2021 trace
// (configs/workloads).
ReuseHistogram DefaultReuseHistogram();

}  // namespace neuroshard
