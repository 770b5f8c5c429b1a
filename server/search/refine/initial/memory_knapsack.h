// Memory knapsack: one way of holding each table, so that all together take the least time within
// every memory.
#pragma once

#include <absl/functional/function_ref.h>

#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// A way of holding a table: what it costs and what it takes of each memory.
struct TableHolding {
  double cost_ms = 0;
  TierBytes bytes = {};
};

enum class KnapsackMethod { kGreedy, kDynamicProgramming };  // kGreedy: nothing but that choice

// The multiple-choice knapsack by the greedy solution of its linear relaxation (Sinha and Zoltners,
// 1979): of every table the one with the fewest bytes of device memory, then what saves most time a
// byte along the lower hulls of (device bytes, cost), as long as there is room, which is `fill` x
// that of devices. Where hosts are short then, a byte of host memory gets a price, found by
// bisection; where no price is enough, the choice is that without one. Where a slower memory is
// short, its bytes get a price likewise, beneath which those of the faster ones are found anew.
// Dynamic programming at these prices takes the place of the greedy choice where that leaves 0.2 %
// of the time to win and the result takes less: for up to 2,048 holdings and tables.
// Returns a position a table, -1 for one without holdings. The holdings of a table are in ascending
// order of device bytes. The greedy choice takes time in the holdings and in sorting tables' steps,
// 24 times at most (312 times where SSDs are short), and asks `should_stop` each time: then the best
// so far is the choice. Dynamic programming takes 1,024 steps a holding and 4 KiB a table.
std::vector<int> FillMemories(
    const std::vector<std::vector<TableHolding>>& tables, const ByTier<double>& room,
    double fill = 1, KnapsackMethod method = KnapsackMethod::kDynamicProgramming,
    absl::FunctionRef<bool()> should_stop = [] { return false; });

}  // namespace neuroshard
