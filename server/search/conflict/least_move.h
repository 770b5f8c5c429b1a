// Least moves: what has to leave its place in any plan that keeps the rules.
#pragma once

#include <cstdint>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/compiled_rules.h"

namespace neuroshard {

struct LeastMoves {
  std::int64_t bytes = 0;   // move at the least, all tables together; saturates at 2^61
  std::vector<int> tables;  // of which some move, ascending
};

// types[t] are those the table may have, one at least. The request must have a migration.
LeastMoves LeastMovesOf(const PlanRequest& request, const CompiledRules& rules,
                        const std::vector<TypeSet>& types);

}  // namespace neuroshard
