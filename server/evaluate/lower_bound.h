// Lower bound of the cost of all plans for a request.
#pragma once

#include "common/domain/plan_report.h"
#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

// A cost that no plan for the request falls below, or, where the model admits no proof of one, the
// cost of an even spread. README of this folder has the proofs.
// - additive_compute, separable_comm and monotone_shard_costs: certified for all plans of the
//   allowed sharding types. Counted are types, kernels, usable ranks and limits on a table's shards
//   and widths, shards that fit no device, and where tables may be off the devices, the memory of
//   all devices together; what shards take of single devices together, groups, limits per rank and
//   migration are not, so the best plan may be dearer.
// - convex_compute, and table_wise is all that any table may use: certified for all plans.
// - otherwise a reference: head(sum of phi of the tables / ranks) plus the communication of the same
//   load on every rank, each table in as few shards as its types allow.
// `model` is bound to the request's conditions. A table whose constraints
// leave it no type counts as free. A few ms for 1,000 tables on 128 ranks.
LowerBound LowerBoundOf(const PlanRequest& request, const BoundCostModel& model);

// The lower bound of a batch, whose ids are others than those that plans are to have memory for:
// these leave `row_capacity_bytes` to the rows (memory_choices.h).
LowerBound LowerBoundOf(const PlanRequest& batch, const BoundCostModel& model,
                        double row_capacity_bytes);

}  // namespace neuroshard
