// Where the rows of tables may be, what that costs at least and what it takes of device memory.
#pragma once

#include <vector>

#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/evaluate/cost_floor.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// A way to keep a table's rows off the device, with a cache of some size or none.
struct OffDeviceChoice {
  double total_ms = 0;      // all ranks together pay at least that
  double device_bytes = 0;  // and it takes at least that much of their memory
};

// Where a table may be. Every layout costs and takes at least as much as one of its entries.
struct TableChoices {
  std::vector<CostFloor> on_device;         // ascending by peak; empty: it may not be there
  double device_bytes = 0;                  // of each of those, at least
  std::vector<OffDeviceChoice> off_device;  // empty: it may not be there
};

// Of every table that the rules leave a type, under a model with additive_compute, separable_comm
// and monotone_shard_costs for which no kernel is cheaper than those in device memory; `model` is
// bound to the request's conditions. README of this folder has the proof.
std::vector<TableChoices> MemoryChoicesOf(const PlanRequest& request, const CompiledRules& rules,
                                          const BoundCostModel& model);

// Bytes of all devices for the rows of tables: without what is kept free, and without the ids and
// vectors that every plan has.
double RowCapacityBytes(const PlanRequest& request);

}  // namespace neuroshard
