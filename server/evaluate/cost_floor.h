// Cost floors: the least that a table costs, however it is laid out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/rules/residency.h"

namespace neuroshard {

// The floor of one layout of a table, or of several layouts with the same floor.
struct CostFloor {
  double peak_ms = 0;   // some rank pays at least that for the table
  double total_ms = 0;  // all ranks together pay at least that for it

  bool operator==(const CostFloor&) const = default;
};

// What all ranks together pay at least for a table in layouts of one type, by where its rows are.
struct KernelTotals {
  double fused_ms = 0;      // in device memory
  double fused_uvm_ms = 0;  // in host memory, without a cache
};

// The least that a set of layouts of one table costs.
struct LayoutFloors {
  // Each of the layouts costs at least as much as one of these, in both respects. Ascending by peak,
  // descending by total; empty where there is none.
  std::vector<CostFloor> floors;
  // Every rank pays at least that in layouts that take all of them. 0 where there is none.
  double every_rank_ms = 0;
  // Some rank pays at least that in layouts that may leave a rank out. Infinite where there is none.
  double some_ranks_peak_ms = std::numeric_limits<double>::infinity();
};

// The floors of one table.
struct TableFloors {
  // With rows in device memory, and no shard whose rows are more than a device has room for.
  LayoutFloors on_device;
  // With rows off the device; such a shard costs no less than it would in device memory. Empty
  // unless asked for, and so are the totals.
  LayoutFloors off_device;
  // Every layout with rows off the device costs at least as much as one of these with its kernel.
  std::vector<KernelTotals> totals;
};

// Those of `all` that no other one is below in both respects, ascending by the first one.
template <typename T>
std::vector<T> LowestOf(std::vector<T> all, double T::*first, double T::*second) {
  std::ranges::sort(all, {}, [=](const T& one) { return std::pair(one.*first, one.*second); });
  std::vector<T> lowest;
  for (const T& one : all) {
    if (lowest.empty() || one.*second < lowest.back().*second) lowest.push_back(one);
  }
  return lowest;
}

// Floors of table `index` under a model with additive_compute, separable_comm and
// monotone_shard_costs; `pricer` is of this request and such a model. O(log(columns) + columns / 4
// up to 256) shards are priced, and one of each size of row blocks in proportion; for `off_device`
// one of each type besides. `device_bytes`: what shards can take on the largest device that the
// table may be on. Why this is so: README of this folder.
TableFloors TableFloorsOf(const PlanRequest& request, const CompiledRules& rules, int index,
                          ShardPricer& pricer, std::int64_t device_bytes, bool off_device);

// The floors of all layouts with a kernel off the device whose price differs from that of kFused in
// one bandwidth alone. As many shards are priced.
LayoutFloors FloorsIn(const Residency& residency, const PlanRequest& request,
                      const CompiledRules& rules, int index, ShardPricer& pricer);

}  // namespace neuroshard
