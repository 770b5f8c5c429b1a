// The price of device memory: a lower bound's account of tables that do not all fit on the devices.
#pragma once

#include <vector>

#include "server/evaluate/cost_floor.h"
#include "server/evaluate/memory_choices.h"

namespace neuroshard {

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
