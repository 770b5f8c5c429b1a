// `hugectr_auto`: the sharding planner of HugeCTR's DLRM sample (samples/dlrm/sharding/planner.py,
// as in NVIDIA's MLPerf Training v3.1 submission), where tables are replicated or cut in rows over
// some of the buckets.
#pragma once

#include <functional>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/search/core/search_context.h"

namespace neuroshard {

struct HugeCtrTable {
  double hotness = 1;    // ids a sample
  double gigabytes = 0;  // weights and optimizer state, 10^9 bytes
};

// Input of the planner. Capacities and memory are in one unit of the caller's choice.
struct HugeCtrProblem {
  std::vector<HugeCtrTable> tables;
  std::vector<double> bucket_capacity;                         // by bucket, a rank or a host
  std::function<double(int table, int holders)> shard_memory;  // of one of `holders` shards
  std::function<double(int table)> replica_memory;
  HugeCtrOptions options;
};

// A plan. holders[t] are the buckets that share the rows of table t, ascending; empty: replicated.
struct HugeCtrCandidate {
  double max_cost = 0;  // lookups per sample (ForEachHugeCtrCandidate)
  std::vector<std::vector<int>> holders;
};

// Calls `visit` with each candidate that fits. A bucket costs the sum over its shards of hotness /
// holders, plus bandwidth_ratio / work_ratio per shard; a candidate costs as much as its costliest
// bucket.
//
// Candidates, in order:
// 1. the uniform one: every table over all buckets, none replicated;
// 2. greedy ones, if the replicas alone fit: tables below data_parallel_threshold_gb are
//    replicated, which costs memory only. The others begin as one shard each. Shards in descending
//    hotness go to the bucket with the lowest cost (ties: lower index) among those with room that
//    do not hold the table yet. When all find a place it is a candidate, and the first table in
//    order that may have twice as many shards (at most one per bucket) gets them; when one finds
//    none, its table gets twice as many, or the search ends if it may not. `iterations` rounds.
//
// Shards of equal hotness are in the reverse of a stable ascending sort, where a table that was
// just cut comes after the others. (The peer uses numpy's default sort, whose order of equal keys
// is unspecified, so only such tables can change places.) Ends once `should_stop`, which is polled
// before every candidate and at every shard, returns true.
void ForEachHugeCtrCandidate(const HugeCtrProblem& problem,
                             const std::function<bool()>& should_stop,
                             const std::function<void(HugeCtrCandidate)>& visit);

// Takes the cheapest candidate (the first of equals), with pooling factors as
// hotness; buckets are ranks (`auto`) or, with search.hugectr.hierarchical, hosts (`hier_auto`),
// where a table is cut over all ranks of its hosts. Memory follows the request's rule with each
// rank's own capacity. Replicated tables become data_parallel, a single shard table_wise, rows over
// several or all ranks row_wise_subset, which has HugeCTR's blocks of rows.
//
// INVALID_ARGUMENT (violation at search.hugectr.hierarchical): hierarchical needs at least two
// hosts, with equal numbers of ranks. FAILED_PRECONDITION, which proves nothing: no candidate fits.
Status RunHugeCtr(SearchContext& context);

}  // namespace neuroshard
