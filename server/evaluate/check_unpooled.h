// Check of a plan's unpooled tables against what TorchRec runs.
#pragma once

#include <vector>

#include "common/base/violations.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"

namespace neuroshard {

// Adds what TorchRec cannot run of the tables of kind kEmbedding: sharding types, and column blocks
// of several widths among the column_wise tables of one module and embedding_dim, which make an
// EmbeddingCollection (CompiledRules). `table_of` is TablesOf(plan, request.tables). O(shards).
void CheckUnpooledTables(const PlanRequest& request, const Plan& plan,
                         const std::vector<int>& table_of, Violations& violations);

}  // namespace neuroshard
