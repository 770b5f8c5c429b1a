#include "worker/measure/lookup_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/random.h"
#include "kernels/indices/lookup_generator.h"

namespace neuroshard {

std::int64_t TotalLookups(const ComputeSample& sample) {
  std::int64_t total = 0;  // at most 4096 shards x 2^24 samples x 1e6 ids: below 2^57
  for (const MeasuredShard& shard : sample.shards) {
    total += NumLookups(sample.batch_size, shard.pooling_factor);
  }
  return total;
}

std::int64_t LookupBytes(const ComputeSample& sample) {
  std::int64_t bytes = 0;
  for (const MeasuredShard& shard : sample.shards) {
    const std::int64_t bytes_per_id = shard.weighted ? 12 : 8;
    bytes += NumLookups(sample.batch_size, shard.pooling_factor) * bytes_per_id +
             (sample.batch_size + 1) * 8;
  }
  return bytes;
}

bool HasCaches(const ComputeSample& sample) {
  return std::any_of(sample.shards.begin(), sample.shards.end(), [](const MeasuredShard& shard) {
    return shard.compute_kernel == ComputeKernel::kFusedUvmCaching;
  });
}

StatusOr<std::vector<LookupPlan>> PlanInputs(const ComputeSample& sample, int batch) {
  // A generator that is reseeded per batch keeps batch b the same however many batches are made.
  Random seeds(sample.seed ^ (0x9e3779b97f4a7c15ULL * (static_cast<std::uint64_t>(batch) + 1)));
  Random hot_rows(sample.seed ^ 0x94d049bb133111ebULL);  // the same in all batches
  std::vector<LookupPlan> plans;
  plans.reserve(sample.shards.size());
  for (std::size_t i = 0; i < sample.shards.size(); ++i) {
    const MeasuredShard& shard = sample.shards[i];
    LookupSpec spec = {.rows = shard.rows,
                       .batch_size = sample.batch_size,
                       .pooling_factor = shard.pooling_factor,
                       .weighted = shard.weighted,
                       .seed = seeds.Next()};
    const std::uint64_t hot_rows_seed = hot_rows.Next();
    const bool cached = shard.compute_kernel == ComputeKernel::kFusedUvmCaching;
    if (cached) spec.seed = hot_rows_seed;
    StatusOr<LookupPlan> plan = cached ? PlanIndependentLookups(spec, shard.reuse_histogram, batch)
                                       : PlanLookups(spec, shard.reuse_histogram);
    if (!plan.ok()) return Annotate(plan.status(), fmt::format("shards[{}]", i));
    plans.push_back(*std::move(plan));
  }
  return plans;
}

StatusOr<std::vector<LookupBatch>> ExpandInputs(const std::vector<LookupPlan>& plans,
                                                const StopSignal& stop) {
  std::vector<LookupBatch> inputs;
  inputs.reserve(plans.size());
  for (const LookupPlan& plan : plans) {
    if (stop.ShouldStop()) return absl::CancelledError("stopped while generating ids");
    inputs.push_back(ExpandLookups(plan));
  }
  return inputs;
}

}  // namespace neuroshard
