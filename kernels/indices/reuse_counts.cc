#include "kernels/indices/reuse_counts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

namespace neuroshard {
namespace {

constexpr int kLastBin = kReuseBins - 1;  // has no upper bound

using PerBin = std::array<std::int64_t, kReuseBins>;

constexpr std::int64_t SmallestCount(int bin) {
  return bin == 0 ? 1 : (std::int64_t{1} << (bin - 1)) + 1;
}
constexpr std::int64_t LargestCount(int bin) { return std::int64_t{1} << bin; }

// Mean of a density ~ count^-2 over (2^(bin - 1), 2^bin]. The last bin is treated like the others:
// on the DLRM 2021 tables the ids in it occur 3.2e4 to 6.5e4 times as a rule.
double TypicalCount(int bin) {
  const double mean = static_cast<double>(LargestCount(bin)) * std::numbers::ln2;
  return std::max(mean, static_cast<double>(SmallestCount(bin)));
}

PerBin IdsPerBin(const ReuseHistogram& shares, std::int64_t u) {
  PerBin ids;
  for (int bin = 0; bin < kReuseBins; ++bin) {
    ids[bin] = std::llround(static_cast<double>(u) * shares[bin]);
  }
  return ids;
}

template <typename CountOfBin>
double Lookups(const PerBin& ids, CountOfBin count_of_bin) {
  double sum = 0;
  for (int bin = 0; bin < kReuseBins; ++bin) {
    sum += static_cast<double>(ids[bin]) * static_cast<double>(count_of_bin(bin));
  }
  return sum;
}

std::int64_t Sum(const PerBin& ids) {
  return std::accumulate(ids.begin(), ids.end(), std::int64_t{0});
}

ReuseHistogram ReachableShares(const ReuseHistogram& histogram, std::int64_t lookups) {
  ReuseHistogram shares = histogram;
  const int reachable = ReuseBin(lookups);
  for (int bin = reachable + 1; bin < kReuseBins; ++bin) {
    shares[reachable] += shares[bin];
    shares[bin] = 0;
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

// The ids of one bin, counts as equal as possible.
void AppendEqualCounts(std::int64_t ids, std::int64_t lookups, std::vector<ReuseCount>& counts) {
  if (ids == 0) return;
  const std::int64_t more = lookups % ids;
  if (more < ids) counts.push_back({lookups / ids, ids - more});
  if (more > 0) counts.push_back({lookups / ids + 1, more});
}

// Counts within the bins' bounds that sum up to `lookups`; the caller knows that they exist.
std::vector<ReuseCount> FitWithinBins(const PerBin& ids, std::int64_t lookups) {
  const double smallest = Lookups(ids, SmallestCount);
  const double typical = Lookups(ids, TypicalCount);
  const double largest = Lookups(ids, LargestCount);
  const auto wanted = static_cast<double>(lookups);
  // Slides every bin's mean count from the typical one towards its smallest or largest; the open
  // last bin takes an excess alone.
  double slide = 0;
  if (wanted < typical) slide = (wanted - typical) / (typical - smallest);
  if (wanted > typical && ids[kLastBin] == 0) slide = (wanted - typical) / (largest - typical);
  PerBin bin_lookups, low, high;
  for (int bin = 0; bin < kReuseBins; ++bin) {
    const double mean = TypicalCount(bin);
    const double room = slide < 0 ? mean - static_cast<double>(SmallestCount(bin))
                                  : static_cast<double>(LargestCount(bin)) - mean;
    low[bin] = ids[bin] * SmallestCount(bin);
    high[bin] = bin == kLastBin && ids[bin] > 0 ? lookups : ids[bin] * LargestCount(bin);
    bin_lookups[bin] = std::clamp<std::int64_t>(
        std::llround(static_cast<double>(ids[bin]) * (mean + slide * room)), low[bin], high[bin]);
  }
  // What rounding left, or the excess of the last bin.
  std::int64_t missing = lookups - Sum(bin_lookups);
  for (int bin = kLastBin; bin >= 0; --bin) {
    const std::int64_t step =
        std::clamp(missing, low[bin] - bin_lookups[bin], high[bin] - bin_lookups[bin]);
    bin_lookups[bin] += step;
    missing -= step;
  }
  std::vector<ReuseCount> counts;
  for (int bin = 0; bin < kReuseBins; ++bin) {
    AppendEqualCounts(ids[bin], bin_lookups[bin], counts);
  }
  return counts;
}

// The largest counts of the bins times one factor above 1, so that they sum up to `lookups`. Some
// bin has ids.
std::vector<ReuseCount> GrowBeyondBins(const PerBin& ids, std::int64_t lookups) {
  const double factor = static_cast<double>(lookups) / Lookups(ids, LargestCount);
  int lowest = 0;
  while (ids[lowest] == 0) ++lowest;
  std::vector<ReuseCount> counts;
  std::int64_t left = lookups;
  for (int bin = kLastBin; bin > lowest; --bin) {
    // Rounded down, so that enough is left for the last one.
    const auto grown = static_cast<std::int64_t>(factor * static_cast<double>(ids[bin]) *
                                                 static_cast<double>(LargestCount(bin)));
    AppendEqualCounts(ids[bin], grown, counts);
    left -= grown;
  }
  AppendEqualCounts(ids[lowest], left, counts);
  return counts;
}

}  // namespace

std::vector<ReuseCount> ChooseReuseCounts(const ReuseHistogram& histogram, std::int64_t lookups,
                                          std::int64_t rows) {
  const ReuseHistogram shares = ReachableShares(histogram, lookups);
  const auto wanted = static_cast<double>(lookups);
  const auto fits_rows = [&](std::int64_t u) { return Sum(IdsPerBin(shares, u)) <= rows; };

  // The largest u whose typical counts do not exceed the lookups: everything here grows with u.
  std::int64_t u = 0, too_large = std::min(rows, lookups) + kReuseBins + 1;
  while (too_large - u > 1) {
    const std::int64_t middle = u + (too_large - u) / 2;
    const bool fits =
        fits_rows(middle) && Lookups(IdsPerBin(shares, middle), TypicalCount) <= wanted;
    (fits ? u : too_large) = middle;
  }
  const PerBin ids = IdsPerBin(shares, u), next = IdsPerBin(shares, too_large);
  if (Sum(ids) > 0 && (ids[kLastBin] > 0 || Lookups(ids, LargestCount) >= wanted)) {
    return FitWithinBins(ids, lookups);
  }
  if (fits_rows(too_large) && Lookups(next, SmallestCount) <= wanted) {
    return FitWithinBins(next, lookups);
  }
  if (Sum(ids) == 0) return {{lookups, 1}};
  if (Sum(ids) >= rows || !fits_rows(too_large)) return GrowBeyondBins(ids, lookups);
  const auto typical = static_cast<std::int64_t>(std::floor(Lookups(ids, TypicalCount)));
  if (typical >= lookups) return FitWithinBins(ids, lookups);
  std::vector<ReuseCount> counts = FitWithinBins(ids, typical);
  counts.push_back({lookups - typical, 1});
  return counts;
}

}  // namespace neuroshard
