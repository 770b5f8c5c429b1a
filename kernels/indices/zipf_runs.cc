#include "kernels/indices/zipf_runs.h"

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

// Each run is at most this part of the ranks before it.
constexpr std::int64_t kPart = 128;
// Of all ranks, about: leaves room for rounding up, and Scale needs no more.
constexpr double kRunKeys = 0x1p62;

// (e^x - 1) / x, also near 0, where exponents near 1 lead.
double ExpRatio(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }

// The integral of x^-exponent over [begin, end], 0 < begin <= end.
double Integral(double begin, double end, double exponent) {
  const double ratio = std::log(end / begin);
  return std::exp((1 - exponent) * std::log(begin)) * ExpRatio((1 - exponent) * ratio) * ratio;
}

struct Run {
  std::int64_t first_rank, ranks;
  double weight;  // of all its ranks
};

}  // namespace

ZipfRuns MakeZipfRuns(std::int64_t ranks, double exponent) {
  std::vector<Run> runs;
  double sum = 0;
  for (std::int64_t rank = 0; rank < ranks;) {
    const std::int64_t width = std::min(ranks - rank, std::max<std::int64_t>(1, rank / kPart));
    const auto first = static_cast<double>(rank + 1);
    // The midpoint rule backwards: the sum over k is the integral from k - 1/2 to k + 1/2.
    const double weight =
        width == 1 ? std::pow(first, -exponent)
                   : Integral(first - 0.5, first - 0.5 + static_cast<double>(width), exponent);
    runs.push_back({rank, width, weight});
    sum += weight;
    rank += width;
  }
  ZipfRuns result;
  for (const Run& run : runs) {
    const double keys = kRunKeys * run.weight / sum / static_cast<double>(run.ranks);
    const auto keys_per_rank = std::llround(keys);
    if (keys_per_rank == 0) break;  // frequencies fall, so nothing comes after
    // Equal frequencies are one run: all ranks, when exponent is 0.
    if (result.runs.empty() || result.runs.back().keys_per_rank != keys_per_rank) {
      result.runs.push_back({result.num_keys, run.first_rank, keys_per_rank});
    }
    result.num_keys += keys_per_rank * run.ranks;
  }
  return result;
}

}  // namespace neuroshard
