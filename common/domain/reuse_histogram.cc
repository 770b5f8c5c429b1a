#include "common/domain/reuse_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

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

// P(Poisson(mean) <= 2^bin) by bin, of a few means side by side: one after the other, each term
// would wait for the one before.
constexpr std::size_t kMeans = 4;
using Means = std::array<double, kMeans>;
using UpToBin = std::array<Means, kReuseBins>;

// Means up to kNormalFrom, by summing the terms.
void SumTerms(const Means& mean, Means term, UpToBin& up_to) {
  for (Means& of_bin : up_to) of_bin.fill(1);
  Means sum = term;
  const auto add = [&](int count) {
    for (std::size_t m = 0; m < kMeans; ++m) {
      term[m] *= mean[m] * Reciprocals()[static_cast<std::size_t>(count)];
      sum[m] += term[m];
    }
  };
  int summed = 0;
  for (int bin = 0; 1 << bin <= kMaxTerms; ++bin) {
    while (summed + 1 < 1 << bin) add(++summed);
    std::array<bool, kMeans> has_all;
    for (std::size_t m = 0; m < kMeans; ++m) has_all[m] = summed > mean[m] && term[m] < 1e-18;
    if (std::ranges::all_of(has_all, [](bool all) { return all; })) return;
    add(++summed);
    for (std::size_t m = 0; m < kMeans; ++m) {
      if (!has_all[m]) up_to[static_cast<std::size_t>(bin)][m] = std::min(sum[m], 1.0);
    }
  }
}

// P(Normal(mean, sqrt(mean)) <= count), count in the middle between two.
double NormalUpTo(double count, double mean, double deviation) {
  const double z = (count + 0.5 - mean) / deviation;
  if (z < -6) return 0;  // less than 1e-17
  return z > 6 ? 1 : 0.5 * std::erfc(-z);
}

}  // namespace

int ReuseBin(std::int64_t count) {
  if (count <= 1) return 0;
  return std::min(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1))),
                  kReuseBins - 1);
}

const ReuseHistogram& MeanReuseCounts() {
  static const auto means = [] {
    ReuseHistogram values{};
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

ZipfHistograms::Group ZipfHistograms::GroupOf(std::int64_t begin, std::int64_t end) const {
  const double middle = std::sqrt(static_cast<double>(begin) * static_cast<double>(end - 1));
  return {static_cast<double>(end - begin), std::pow(middle, -exponent_)};
}

std::vector<ZipfHistograms::Group> ZipfHistograms::GroupsUpTo(std::int64_t rows) {
  std::size_t whole = 0;
  std::int64_t begin = 1;
  while (begin <= rows) {
    const std::int64_t end = std::max(begin + 1, begin + begin / 16);
    if (end > rows + 1) break;
    if (whole == whole_groups_.size()) whole_groups_.push_back(GroupOf(begin, end));
    ++whole;
    begin = end;
  }
  std::vector<Group> groups(whole_groups_.begin(),
                            whole_groups_.begin() + static_cast<std::ptrdiff_t>(whole));
  if (begin <= rows) groups.push_back(GroupOf(begin, rows + 1));
  return groups;
}

ReuseHistogram ZipfHistograms::Of(std::int64_t rows, std::int64_t num_ids) {
  // Ranks are grouped in ranges that grow geometrically, each priced at its middle; a row expected
  // m times is hit a Poisson(m) number of times, so bin k holds rows * P(lower < Poisson(m) <=
  // upper).
  const std::vector<Group> groups = GroupsUpTo(rows);
  double total_weight = 0;
  for (const Group& group : groups) total_weight += group.rows * group.weight;
  ReuseHistogram histogram{};
  double distinct = 0;
  UpToBin up_to;
  for (std::size_t first = 0; first < groups.size(); first += kMeans) {
    Means mean{}, none{}, deviation{};
    for (std::size_t m = 0; m < kMeans && first + m < groups.size(); ++m) {
      mean[m] = static_cast<double>(num_ids) * groups[first + m].weight / total_weight;
      deviation[m] = std::sqrt(2 * mean[m]);
      none[m] = mean[m] > kNormalFrom ? NormalUpTo(0, mean[m], deviation[m]) : std::exp(-mean[m]);
    }
    // Means fall from group to group.
    if (mean.back() <= kNormalFrom) SumTerms(mean, none, up_to);
    for (std::size_t m = 0; m < kMeans && first + m < groups.size(); ++m) {
      const bool normal = mean[m] > kNormalFrom;
      // Bins further below the mean than NormalUpTo looks get nothing.
      const double least = normal ? mean[m] - 6 * deviation[m] - 1 : 0;
      std::size_t bin = 0;
      while (bin < kReuseBins - 1 && 1 << bin < least) ++bin;
      for (double below = none[m]; bin < kReuseBins && below != 1; ++bin) {
        const double to = bin == kReuseBins - 1 ? 1.0
                          : normal              ? NormalUpTo(1 << bin, mean[m], deviation[m])
                                                : up_to[bin][m];
        const double share = std::max(0.0, to - below) * groups[first + m].rows;
        histogram[bin] += share;
        distinct += share;
        below = std::max(below, to);
      }
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
