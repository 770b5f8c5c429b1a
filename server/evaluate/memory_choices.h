// Where the rows of tables may be, what that costs at least and what it takes of device memory, and
// the price of that memory: a lower bound's account of tables that do not all fit on the devices.
#pragma once

#include <limits>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/cost/cost_model.h"
#include "server/evaluate/cost_floor.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

// A cache of rows in host memory that holds at least `load_factor` of them costs at least `share` of
// the way from the price in device memory to the price in host memory without a cache.
struct CacheStep {
  double load_factor = 0;
  double share = 0;
};

// What caches of all sizes cost at least, the same for all shards: for every cache there is a step
// with no more of both. Immutable.
class CacheCurve {
 public:
  // Any steps, at least one; those above the convex hull of the others are left out.
  explicit CacheCurve(std::vector<CacheStep> steps);

  // The step with the least share + price x load_factor, for any price >= 0. O(log(steps)).
  const CacheStep& Cheapest(double price) const;

 private:
  std::vector<CacheStep> hull_;  // convex: each step saves less for a load factor
};

// Where a table's rows may be without choosing a size of cache.
struct MemoryChoice {
  std::vector<CostFloor> floors;  // as LayoutFloors::floors; not empty
  double device_bytes = 0;        // each takes at least that much of all devices' memory

  double least_total_ms() const { return floors.back().total_ms; }
};

// Where a table may be. Every layout costs and takes at least as much as one of its entries.
struct TableChoices {
  int table = 0;                      // in PlanRequest::tables
  std::vector<MemoryChoice> choices;  // in device memory or off it; empty: the rules allow neither
  std::vector<KernelTotals> cached;   // behind a cache, by type; empty: the rules forbid it
  // Their device memory with no row in the cache and with all; linear in the load factor between.
  double least_cache_bytes = 0;
  double most_cache_bytes = 0;
  // No layout with a cache has a smaller peak.
  double cached_peak_ms = 0;
  // Both are as in LayoutFloors, over all layouts.
  double every_rank_ms = 0;
  double some_ranks_peak_ms = std::numeric_limits<double>::infinity();

  bool empty() const { return choices.empty() && cached.empty(); }
};

// All tables that the rules leave a layout.
struct MemoryChoices {
  std::vector<TableChoices> tables;
  CacheCurve caches;
};

// Under a model with additive_compute, separable_comm and monotone_shard_costs for which no kernel
// is cheaper than those in device memory; `model` is bound to the request's conditions. README of
// this folder has the proof.
MemoryChoices MemoryChoicesOf(const PlanRequest& request, const CompiledRules& rules,
                              const BoundCostModel& model);

// Bytes of all devices for the rows of tables: without what is kept free, and without the ids and
// vectors that every plan has.
double RowCapacityBytes(const PlanRequest& request);

// The Lagrange multiplier of the limit on all devices' memory together, in ms a byte: what the last
// byte saves. 0 where everything fits at its cheapest, and where nothing fits at all. For every
// price p >= 0, whatever this returns, what all ranks pay together is at least
//   sum over tables of min(total_ms + p x device_bytes) - p x capacity_bytes.
// O(tables x log(steps of the caches)).
double PriceOfMemory(const MemoryChoices& choices, double capacity_bytes);

// The floors of a table whose memory has that price. What is off the device is shared by at most
// `num_ranks`.
std::vector<CostFloor> FloorsAtPrice(const TableChoices& table, const CacheCurve& caches,
                                     double ms_per_byte, int num_ranks);

}  // namespace neuroshard
