// Ids by Zipf's law, for tests and benchmarks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/domain/reuse_histogram.h"
#include "kernels/indices/lookup_generator.h"
#include "kernels/indices/lookup_plan.h"
#include "kernels/indices/lookup_rule.h"

namespace neuroshard {

// Runs and the number of all their keys, below 2^63. With a uniform key, rank k of [0, ranks)
// has probability ~ (k + 1)^-exponent: within 1e-5 for the first 256 ranks and for each run as a
// whole (exponents up to 3); further down up to a 128th of the ranks before it share one frequency,
// which is within exponent / 256 of each one's own. All are rounded to multiples of about 2^-62, so
// ranks that are rarer than half of that are left out.
struct ZipfRuns {
  std::vector<RankRun> runs;
  std::int64_t num_keys = 0;
};

// The integral of x^-exponent over [begin, end], 0 < begin <= end.
inline double ZipfIntegral(double begin, double end, double exponent) {
  const double ratio = std::log(end / begin);
  // (e^x - 1) / x, also near 0, where exponents near 1 lead.
  const double x = (1 - exponent) * ratio;
  const double exp_ratio = std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2;
  return std::exp((1 - exponent) * std::log(begin)) * exp_ratio * ratio;
}

// ranks in [1, 2^62], exponent >= 0 and finite.
inline ZipfRuns MakeZipfRuns(std::int64_t ranks, double exponent) {
  // Each run is at most this part of the ranks before it.
  constexpr std::int64_t kPart = 128;
  // Keys of all ranks, about: leaves room for rounding up, and Scale needs no more.
  constexpr double kRunKeys = 0x1p62;
  struct Run {
    std::int64_t first_rank, ranks;
    double weight;  // of all its ranks
  };
  std::vector<Run> runs;
  double sum = 0;
  for (std::int64_t rank = 0; rank < ranks;) {
    const std::int64_t width = std::min(ranks - rank, std::max<std::int64_t>(1, rank / kPart));
    const auto first = static_cast<double>(rank + 1);
    // The midpoint rule backwards: the sum over k is the integral from k - 1/2 to k + 1/2.
    const double weight =
        width == 1 ? std::pow(first, -exponent)
                   : ZipfIntegral(first - 0.5, first - 0.5 + static_cast<double>(width), exponent);
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

// Independent ids, row k of a random order of the rows with probability ~ (k + 1)^-exponent as
// closely as MakeZipfRuns has it; exponent >= 0, 0 is uniform. INVALID_ARGUMENT when a value is out
// of range. The plan (not what devices make of it) depends on the last digits of the platform's
// logarithm.
inline StatusOr<LookupPlan> PlanZipfLookups(const LookupSpec& spec, double exponent) {
  // The histogram changes none of the plan's seeds; Zipf's law only decides which rank a key has.
  NS_ASSIGN_OR_RETURN(LookupPlan plan, PlanLookups(spec, ReuseHistogram{1}));
  if (!std::isfinite(exponent) || exponent < 0) {
    return InvalidArgument("exponent: must be finite and not negative, got {}", exponent);
  }
  ZipfRuns zipf = MakeZipfRuns(spec.rows, exponent);
  plan.runs = std::move(zipf.runs);
  plan.rule.key_choice = KeyChoice::kDrawn;
  plan.rule.num_keys = zipf.num_keys;
  return plan;
}

}  // namespace neuroshard
