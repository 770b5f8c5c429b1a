// A plan's cost, rank by rank, for a person.
#pragma once

#include <string>

#include "neuroshard/v1/cost.pb.h"

namespace neuroshard {

// One line a rank: compute, communication forward and backward, total, memory used of capacity.
std::string CostTable(const v1::PlanCost& cost);

}  // namespace neuroshard
