// Memory knapsack: one way of holding each table, so that all together take the least time within
// every memory.
#pragma once

#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// A way of holding a table: what it costs and what it takes of each memory.
struct TableHolding {
  double cost_ms = 0;
  TierBytes bytes = {};
};

// The multiple-choice knapsack by the greedy solution of its linear relaxation (Sinha and Zoltners,
// 1979): of every table the one with the fewest bytes of device memory, then what saves most time a
// byte along the lower hulls of (device bytes, cost), as long as there is room, which is `fill` x
// that of devices. Where hosts are short then, a byte of host memory gets a price, found by
// bisection; where no price is enough, the choice is that without one. Where a slower memory is
// short, its bytes get a price likewise, beneath which those of the faster ones are found anew.
// Up to 2,048 holdings dynamic programming at these prices takes the place of the greedy choice
// where it saves time, but not `greedily`, where many choices are made.
// Returns a position a table, -1 for one without holdings. The holdings of a table are in ascending
// order of device bytes. Takes time in the holdings, 24 times at most (312 times where SSDs are
// short), in sorting tables' steps, and up to 1,024 times in 2,048 holdings.
std::vector<int> FillMemories(const std::vector<std::vector<TableHolding>>& tables,
                              const ByTier<double>& room, double fill = 1, bool greedily = false);

}  // namespace neuroshard
