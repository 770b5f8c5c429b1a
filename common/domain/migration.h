// Migration: the plan in place, and a budget or a price for moving weights away from it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/domain/plan.h"

namespace neuroshard {

// Moved is every weight byte (rows x columns x weight type) of the new plan on a rank that did not
// hold that part of the table before in the same memory (ChangesMemory). Tables that the previous
// plan lacks, or has with another number of rows or columns, are new: placing them moves nothing.
struct Migration {
  Plan previous;                             // may lack tables, and have ones that are gone
  std::optional<std::int64_t> budget_bytes;  // none: any amount; 0: nothing moves
  double price_ms_per_gib = 0;  // added to the cost of a plan during search, not to its cost

  // Tables that are in place in one of these types keep type, kernel and load factor and may change
  // ranks and cuts; those in other types stay exactly as they are. Empty: all may change.
  std::vector<ShardingType> only_types = {};

  bool operator==(const Migration&) const = default;
};

}  // namespace neuroshard
