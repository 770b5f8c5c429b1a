// The shards that a plan puts on each rank, as a worker can measure them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/domain/plan.h"
#include "common/domain/plan_request.h"
#include "common/domain/table.h"

namespace neuroshard {

// `rows` x `cols` of the table as a table of their own: rows have their share of the ids; those of
// an unpooled table are not pooled. In device memory.
MeasuredShard MeasuredShardOf(const Table& table, std::int64_t rows, std::int64_t cols);

// What measured shards do not say of their tables, a line for each condition that is there.
std::vector<std::string> LeftOutOf(const std::vector<Table>& tables);

// What a plan asks for and workers do otherwise, a line each: LeftOutOf, offloaded tables,
// exchanges in types that workers do not cast to, speeds of devices. Besides NotesOn
// (plan_collectives.h).
std::vector<std::string> NotMeasuredOf(const PlanRequest& request, const Plan& plan);

// Ids that are distributed to a rank before its lookups.
struct RankIds {
  std::int64_t whole_features = 0;  // of shards with all rows of their tables, once a shard
  double whole_ids = 0;             // mean ids a sample of those together
  std::int64_t cut_features = 0;    // of shards with some of the rows
  double cut_ids = 0;               // the rank's part of theirs
};

// The lookups, the ids and the exchanged columns of one rank under a plan.
struct RankShards {
  std::vector<MeasuredShard> shards;    // looked up for the whole batch
  std::vector<MeasuredShard> replicas;  // data_parallel: looked up for the rank's part of the batch
  // Columns that the rank holds for the whole batch: of whole rows, which an all-to-all exchanges,
  // and of cut rows, whose partial sums are added on the way (reduce-scatter, back by all-gather).
  // An unpooled table has its columns in the all-to-all for each id of a sample, whatever is cut.
  std::int64_t dim_sum = 0;
  std::int64_t cut_row_columns = 0;
  // Ids of tables without and with weights, but of replicas, whose ids stay where they are.
  RankIds ids;
  RankIds weighted_ids;

  // Values of the replicas' gradients, which an all-reduce adds.
  std::int64_t replica_values() const;
};

// One entry a rank of the request's topology. A column shard sees all ids of its table, a shard of
// some rows the same share of the ids. Shards of fused_uvm and fused_uvm_caching are in host
// memory. INVALID_ARGUMENT lists everything that keeps the plan from
// being run: tables missing, unknown or twice, ranks that do not exist, shards outside their table.
// The planner checks whether shards tile their tables and fit in memory (EvaluatePlan).
StatusOr<std::vector<RankShards>> ShardsByRank(const PlanRequest& request, const Plan& plan);

}  // namespace neuroshard
