// Check of a table's shards against its sharding type, and of unpooled tables against what TorchRec
// runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/violations.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table.h"
#include "common/domain/topology.h"

namespace neuroshard {

// Adds every breach of common/domain/shard_layout.h, with paths under `path`
// ("plan.tables[3].shards[0].rows"): kernel and load factor, order and number of shards, columns
// tiled and cut at multiples of kColumnAlignment (the last shard of a table whose dim is none ends
// ragged), rows cut as the type cuts them, ranks where the type and the kernel put them. Every
// shard must have passed CheckShardRange; there is one at least. `hosts` are the topology's.
// O(n log n) for n shards.
void CheckLayout(const Table& table, const TablePlan& plan, const std::vector<HostRanks>& hosts,
                 const Topology& topology, const RowCut& cut, const std::string& path,
                 Violations& violations);

// Adds what TorchRec cannot run of the tables of kind kEmbedding: sharding types, and column blocks
// of several widths among the column_wise tables of one module and embedding_dim, which make an
// EmbeddingCollection (CompiledRules). `table_of` is TablesOf(plan, request.tables). O(shards).
void CheckUnpooledTables(const PlanRequest& request, const Plan& plan,
                         const std::vector<int>& table_of, Violations& violations);

}  // namespace neuroshard
