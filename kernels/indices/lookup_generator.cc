#include "kernels/indices/lookup_generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/random.h"
#include "common/domain/expected_lookups.h"
#include "kernels/indices/lookup_rule.h"
#include "kernels/indices/reuse_counts.h"

namespace neuroshard {
namespace {

// Beyond any memory that a batch could be generated in; keep the arithmetic far from overflow.
constexpr double kMaxLookups = 0x1p40;
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 31;

Status Check(const LookupSpec& spec) {
  if (spec.rows < 1 || spec.rows > (std::int64_t{1} << 62)) {
    return InvalidArgument("rows: must be in [1, 2^62], got {}", spec.rows);
  }
  if (spec.batch_size < 1 || spec.batch_size > kMaxBatch) {
    return InvalidArgument("batch_size: must be in [1, 2^31], got {}", spec.batch_size);
  }
  if (!std::isfinite(spec.pooling_factor) || spec.pooling_factor < 0) {
    return InvalidArgument("pooling_factor: must be finite and not negative, got {}",
                           spec.pooling_factor);
  }
  if (static_cast<double>(spec.batch_size) * spec.pooling_factor > kMaxLookups) {
    return InvalidArgument("pooling_factor: {} ids for each of {} samples are more than 2^40",
                           spec.pooling_factor, spec.batch_size);
  }
  return absl::OkStatus();
}

Status CheckBins(const ReuseHistogram& histogram) {
  for (int bin = 0; bin < kReuseBins; ++bin) {
    if (!std::isfinite(histogram[bin]) || histogram[bin] < 0) {
      return InvalidArgument("reuse_histogram[{}]: must be finite and not negative, got {}", bin,
                             histogram[bin]);
    }
  }
  return absl::OkStatus();
}

Status CheckSum(const ReuseHistogram& histogram, std::int64_t lookups) {
  const double sum = std::accumulate(histogram.begin(), histogram.end(), 0.0);
  if (!(sum > 0) || !std::isfinite(sum)) {
    return InvalidArgument("reuse_histogram: sums up to {}, but {} ids are to be looked up", sum,
                           lookups);
  }
  return absl::OkStatus();
}

// All but the runs, of checked arguments.
StatusOr<LookupPlan> StartPlan(const LookupSpec& spec, const ReuseHistogram& histogram,
                               KeyChoice key_choice) {
  NS_RETURN_IF_ERROR(Check(spec));
  NS_RETURN_IF_ERROR(CheckBins(histogram));
  LookupPlan plan;
  plan.rows = spec.rows;
  plan.weighted = spec.weighted;
  LookupRule& rule = plan.rule;
  rule.batch_size = spec.batch_size;
  rule.lookups = NumLookups(spec.batch_size, spec.pooling_factor);
  rule.key_choice = key_choice;
  Random random(spec.seed);
  rule.row_order = RandomPermutation(spec.rows, random.Next());
  rule.key_order = RandomPermutation(std::max<std::int64_t>(1, rule.lookups), random.Next());
  rule.draw_seed = random.Next();
  rule.length_seed = random.Next();
  rule.weight_seed = random.Next();
  if (rule.lookups > 0) NS_RETURN_IF_ERROR(CheckSum(histogram, rule.lookups));
  return plan;
}

// Keys of all rows, about: leaves room for rounding up.
constexpr double kKeys = 0x1p61;

}  // namespace

std::int64_t NumLookups(std::int64_t batch_size, double pooling_factor) {
  return std::llround(static_cast<double>(batch_size) * pooling_factor);
}

StatusOr<LookupPlan> PlanLookups(const LookupSpec& spec, const ReuseHistogram& histogram) {
  NS_ASSIGN_OR_RETURN(LookupPlan plan, StartPlan(spec, histogram, KeyChoice::kPermuted));
  const std::int64_t lookups = plan.rule.lookups;
  if (lookups == 0) return plan;
  RankRun next;
  for (const ReuseCount& group : ChooseReuseCounts(histogram, lookups, spec.rows)) {
    next.keys_per_rank = group.count;
    plan.runs.push_back(next);
    next.first_key += group.count * group.ids;
    next.first_rank += group.ids;
  }
  return plan;
}

StatusOr<LookupPlan> PlanIndependentLookups(const LookupSpec& spec, const ReuseHistogram& histogram,
                                            std::int64_t batch) {
  NS_ASSIGN_OR_RETURN(LookupPlan plan, StartPlan(spec, histogram, KeyChoice::kDrawn));
  plan.rule.draw_seed = SplitMix(plan.rule.draw_seed + static_cast<std::uint64_t>(batch));
  const std::int64_t lookups = plan.rule.lookups;
  if (lookups == 0) return plan;
  const auto ids = static_cast<double>(lookups);
  double rows = 0;  // of the classes so far, and the lookups of those that have no whole rank yet
  double waiting = 0;
  RankRun next;
  for (const RowClass& row_class : RowClassesOf(histogram, spec.rows, ids)) {
    rows += row_class.rows;
    waiting += row_class.rows * row_class.mean_lookups;
    const std::int64_t end = std::min<std::int64_t>(spec.rows, std::llround(rows));
    const std::int64_t ranks = end - next.first_rank;
    if (ranks < 1) continue;
    next.keys_per_rank =
        std::max<std::int64_t>(1, std::llround(kKeys * waiting / ids / static_cast<double>(ranks)));
    plan.runs.push_back(next);
    next.first_key += next.keys_per_rank * ranks;
    next.first_rank = end;
    waiting = 0;
  }
  if (plan.runs.empty()) {  // less than half a row: one takes all
    plan.runs.push_back({});
    next.first_key = 1;
  }
  plan.rule.num_keys = next.first_key;
  return plan;
}

}  // namespace neuroshard
