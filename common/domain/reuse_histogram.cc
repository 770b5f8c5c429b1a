#include "common/domain/reuse_histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace neuroshard {
namespace {

// From this mean on a normal distribution stands for Poisson's.
constexpr double kNormalFrom = 64;
// Past so many terms, a Poisson distribution with a lower mean has less than 1e-18 left.
constexpr int kMaxTerms = 160;

const std::array<double, kMaxTerms + 1>& Reciprocals() {
  static const auto reciprocals = [] {
    std::array<double, kMaxTerms + 1> values{};
    for (int i = 1; i <= kMaxTerms; ++i) values[i] = 1.0 / i;
    return values;
  }();
  return reciprocals;
}

// P(Poisson(mean) <= count) for ascending counts; each term is summed once.
class PoissonCdf {
 public:
  explicit PoissonCdf(double mean)
      : mean_(mean),
        deviation_(std::sqrt(2 * mean)),
        term_(mean > kNormalFrom ? 0 : std::exp(-mean)),
        sum_(term_) {}

  double UpTo(int count) {
    if (mean_ > kNormalFrom) {
      const double z = (count + 0.5 - mean_) / deviation_;
      if (z < -6) return 0;  // less than 1e-17
      return z > 6 ? 1 : 0.5 * std::erfc(-z);
    }
    while (summed_ < count) {
      if (summed_ >= kMaxTerms || (summed_ > mean_ && term_ < 1e-18)) return 1;
      ++summed_;
      term_ *= mean_ * Reciprocals()[summed_];
      sum_ += term_;
    }
    return std::min(sum_, 1.0);
  }

 private:
  double mean_;
  double deviation_;
  double term_;
  double sum_;
  int summed_ = 0;
};

}  // namespace

int ReuseBin(std::int64_t count) {
  if (count <= 1) return 0;
  return std::min(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1))),
                  kReuseBins - 1);
}

ReuseHistogram MeasureReuseHistogram(std::span<const std::int64_t> ids) {
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

ReuseHistogram ZipfReuseHistogram(std::int64_t rows, std::int64_t num_ids, double exponent) {
  // Ranks are grouped in ranges that grow geometrically, each priced at its middle; a row expected
  // m times is hit a Poisson(m) number of times, so bin k holds rows * P(lower < Poisson(m) <=
  // upper).
  struct Group {
    double rows;
    double weight;
  };
  std::vector<Group> groups;
  double total_weight = 0;
  for (std::int64_t begin = 1; begin <= rows;) {
    const std::int64_t end = std::min(rows + 1, std::max(begin + 1, begin + begin / 16));
    const double middle = std::sqrt(static_cast<double>(begin) * static_cast<double>(end - 1));
    const double weight = std::pow(middle, -exponent);
    const double count = static_cast<double>(end - begin);
    groups.push_back({count, weight});
    total_weight += count * weight;
    begin = end;
  }
  ReuseHistogram histogram{};
  double distinct = 0;
  for (const Group& group : groups) {
    PoissonCdf cdf(static_cast<double>(num_ids) * group.weight / total_weight);
    double below = cdf.UpTo(0);
    for (int bin = 0; bin < kReuseBins; ++bin) {
      const double up_to = bin == kReuseBins - 1 ? 1.0 : cdf.UpTo(1 << bin);
      const double share = std::max(0.0, up_to - below) * group.rows;
      histogram[bin] += share;
      distinct += share;
      below = std::max(below, up_to);
      if (below == 1) break;  // the other bins get nothing
    }
  }
  if (distinct <= 0) {
    histogram[0] = 1;
    return histogram;
  }
  for (double& share : histogram) share /= distinct;
  return histogram;
}

ReuseHistogram DefaultReuseHistogram() {
  // Mean over the 820 of the 856 tables that are looked up at all.
  return {0.234433,  0.108988,  0.131685,   0.110794,   0.0859675, 0.0586633,
          0.0403392, 0.0342197, 0.0326429,  0.0282653,  0.027776,  0.0224811,
          0.0197624, 0.0153382, 0.00660477, 0.00794339, 0.0340953};
}

}  // namespace neuroshard
