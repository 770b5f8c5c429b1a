// The ids of a compute sample.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/measurement.h"
#include "kernels/indices/lookup_plan.h"

namespace neuroshard {

// Ids of one batch over all shards.
std::int64_t TotalLookups(const ComputeSample& sample);

// Bytes that one batch's ids, offsets and weights take.
std::int64_t LookupBytes(const ComputeSample& sample);

// Whether rows are looked up through a cache (fused_uvm_caching).
bool HasCaches(const ComputeSample& sample);

// One plan a shard. With a cache the shard's ids are independent ones by one law over all batches
// (PlanIndependentLookups), so that a cache finds rows again as it would in training. Different
// shards and different `batch` numbers get different ids, all determined by sample.seed. A fault of
// shard i is reported as "shards[i]: ...".
StatusOr<std::vector<LookupPlan>> PlanInputs(const ComputeSample& sample, int batch);

// The planned ids, made by this thread. Looks at `stop` between shards (CANCELLED).
StatusOr<std::vector<LookupBatch>> ExpandInputs(const std::vector<LookupPlan>& plans,
                                                const StopSignal& stop);

}  // namespace neuroshard
