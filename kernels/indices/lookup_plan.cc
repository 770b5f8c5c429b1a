#include "kernels/indices/lookup_plan.h"

namespace neuroshard {

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
  for (std::int64_t i = 0; i < rule.lookups; ++i) batch.ids[i] = rule.Id(i);
  if (plan.weighted) {
    batch.weights.resize(rule.lookups);
    for (std::int64_t i = 0; i < rule.lookups; ++i) batch.weights[i] = rule.Weight(i);
  }
  return batch;
}

}  // namespace neuroshard
