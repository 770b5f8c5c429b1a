// A plan's cost, rank by rank, for a person.
#pragma once

#include <string>

#include "client/cli/text_table.h"
#include "neuroshard/v1/cost.pb.h"

namespace neuroshard {

// "7.100..8.000".
std::string IntervalText(const v1::CostInterval& interval);

// One line a rank: distribution of ids where it is priced (ids_ms, kWide: input_dist_ms), compute,
// communication (kWide: forward and backward), total (and its interval, where a rank has one),
// memory used of capacity. The costliest rank and those over their memory are marked, and a line
// below says so; another one where the total leaves the distribution of ids out.
std::string CostTable(const v1::PlanCost& cost, const TextStyle& style);

// "cost 7.500 ms", and ", 90% within 7.100..8.000" where the model has intervals, and
// ", 9.000 ms on average over the batches (+20.0%)" where the request has a sample of them; scripts
// read the first part up to its comma.
std::string CostText(const v1::PlanCost& cost);

}  // namespace neuroshard
