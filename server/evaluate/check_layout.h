// Check of a table's shards: whether they lie in it, keep to its sharding type, and are what
// TorchRec runs of unpooled tables.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/base/violations.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table.h"
#include "common/domain/topology.h"

namespace neuroshard {

// Position of a shard in a plan; its path is made only for a violation.
struct ShardPosition {
  std::size_t table = 0;  // in Plan::tables
  std::size_t shard = 0;  // in TablePlan::shards
};

// Adds a violation, under "plan.tables[3].shards[0]", for every range of `shard` that is empty or
// leaves `table`, and for a rank outside [0, num_ranks). A shard of a type that cuts rows may have
// none of them. Returns whether there was no violation. Any values are fine. The part of legality
// that pricing needs too.
bool CheckShardRange(const Table& table, ShardingType type, const Shard& shard, int num_ranks,
                     ShardPosition position, Violations& violations);

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
