// Memory knapsack: one way of holding each table, so that all together take the least time within
// device memory, host memory and SSDs.
#pragma once

#include <cstdint>
#include <vector>

namespace neuroshard {

// A way of holding a table: what it costs and what it takes of each memory.
struct TableHolding {
  double cost_ms = 0;
  std::int64_t device_bytes = 0;
  std::int64_t host_bytes = 0;
  std::int64_t ssd_bytes = 0;
};

// The multiple-choice knapsack by the greedy solution of its linear relaxation (Sinha and Zoltners,
// 1979): of every table the one with the fewest bytes of device memory, then what saves most time a
// byte along the lower hulls of (device bytes, cost), as long as there is room. Where hosts are
// short then, a byte of host memory gets a price, found by bisection; where no price is enough, the
// choice is that without one. Where SSDs are short, one of them gets a price likewise, beneath which
// that of host memory is found anew. Returns a position a table, -1 for one without holdings. The
// holdings of a table are in ascending order of device bytes. Takes time in the holdings, 24 times at
// most (288 times where SSDs are short), and in sorting tables' steps.
std::vector<int> FillMemories(const std::vector<std::vector<TableHolding>>& tables,
                              double device_room, double host_room, double ssd_room = 0);

}  // namespace neuroshard
