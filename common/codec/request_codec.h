// ShardPlanRequest <-> PlanRequest. Decoding is where a request is checked: a PlanRequest that
// exists is valid and is not checked again. The ranges and defaults are those stated in
// proto/neuroshard/v1.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/base/violations.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// Admission limits of a server; quoted in the error when exceeded. The part of a request that is
// over a limit is not decoded, so that it costs no time.
struct RequestLimits {
  std::int64_t max_tables = 20'000;
  std::int64_t max_devices = 16'384;
  // No more than requests can ask for at all; a server has its own.
  std::int64_t max_search_threads = 1024;
  std::int64_t max_constraint_entries = 1'000'000;
  // Shards, and tables, of a plan that a request brings along. A plan of the largest requests has
  // fewer; pricing takes some 500 bytes a shard.
  std::int64_t max_plan_shards = 1'000'000;
  // Shards of all sets of a PredictCompute together.
  std::int64_t max_prediction_shards = 100'000;
};

v1::CostModelRef EncodeCostModelRef(const CostModelRef& model);
// A field "cost_model" of a request; faults go to `violations`.
CostModelRef DecodeCostModelRef(const v1::CostModelRef& message, Violations& violations);

// Whether the plan has at most max_plan_shards shards and tables; if not, adds that `path` has
// more.
bool CheckShardLimit(const std::string& path, const v1::Plan& plan, const RequestLimits& limits,
                     Violations& over_limits);

// A Violation for every faulty field ("tables[3].embedding_dim: must be at least 1, got -4") and
// every limit that is exceeded, as in RequestFaults: RESOURCE_EXHAUSTED when the request is over
// limits and right otherwise, else INVALID_ARGUMENT. What had to be assumed is told in
// PlanRequest::warnings, one line a kind. The strategy and the cost model stay text; the search and
// the repository check the names.
StatusOr<PlanRequest> DecodePlanRequest(const v1::ShardPlanRequest& message,
                                        const RequestLimits& limits);

// The inverse: DecodePlanRequest(EncodePlanRequest(r)) == r for every r that DecodePlanRequest
// returned without warnings.
v1::ShardPlanRequest EncodePlanRequest(const PlanRequest& request);

}  // namespace neuroshard
