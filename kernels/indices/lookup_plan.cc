#include "kernels/indices/lookup_plan.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace neuroshard {
namespace {

// Stays in the first-level cache.
constexpr std::int64_t kBlock = 1024;

// rule.Id of the positions from `first` on, step by step for all of them.
void MakeIds(const LookupRule& rule, std::int64_t first, std::span<std::int64_t> ids) {
  std::iota(ids.begin(), ids.end(), first);
  if (rule.key_choice == KeyChoice::kPermuted) {
    rule.key_order.Apply(ids);
  } else {
    for (std::int64_t& id : ids) id = rule.DrawnKey(id);
  }
  for (std::int64_t& id : ids) id = rule.Rank(id);
  rule.row_order.Apply(ids);
}

}  // namespace

LookupRule LookupPlan::RuleWith(const RankRun* runs_there) const {
  LookupRule complete = rule;
  complete.runs = runs_there;
  complete.num_runs = static_cast<std::int32_t>(runs.size());
  return complete;
}

LookupBatch ExpandLookups(const LookupPlan& plan) {
  const LookupRule rule = plan.RuleWith(plan.runs.data());
  LookupBatch batch;
  batch.offsets.reserve(rule.batch_size + 1);
  for (std::int64_t sample = 0; sample <= rule.batch_size; ++sample) {
    batch.offsets.push_back(rule.Offset(sample));
  }
  batch.ids.resize(rule.lookups);
  for (std::int64_t i = 0; i < rule.lookups; i += kBlock) {
    const std::int64_t size = std::min(kBlock, rule.lookups - i);
    MakeIds(rule, i, std::span(batch.ids).subspan(i, size));
  }
  if (plan.weighted) {
    batch.weights.resize(rule.lookups);
    for (std::int64_t i = 0; i < rule.lookups; ++i) batch.weights[i] = rule.Weight(i);
  }
  return batch;
}

}  // namespace neuroshard
