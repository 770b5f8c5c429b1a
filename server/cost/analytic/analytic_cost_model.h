// The built-in cost model: TorchRec 1.9.2's formulas over the request's bandwidths.
#pragma once

#include <memory>
#include <string_view>

#include "server/cost/cost_model.h"

namespace neuroshard {

inline constexpr std::string_view kAnalyticModelName = "analytic";

// "analytic", version 1: prices any number of ranks and every sharding type, and a plan as TorchRec
// rates it (NoopPerfModel): the largest sum over a rank's shards of their ShardPerf::total_ms().
// phi and CommLoad are the four times of a shard, in ms, so that compute is additive and
// communication a rank's own load. Costs are floats: the formulas are exact to 1e-12, sums of a
// plan to some 1e-7 for each shard of a rank.
//
// Where it takes other words than TorchRec:
// - samples of a rank: global batch / ranks, which need not be whole;
// - rows of fused_uvm_caching that a pipeline of type train_prefetch_sparse_dist fetches are those
//   that ExpectedCacheHits misses, where TorchRec takes CacheStatistics; their time is part of the
//   forward compute. Without that pipeline prices are TorchRec's without CacheStatistics;
// - output_dtype changes no time, as in TorchRec;
// - L is the ranks of the largest host; a table_row_wise or grid_shard table divides its ids by the
//   ranks that hold its rows;
// - row_wise_subset is row_wise with ids divided by its holders;
// - one rank communicates with nobody and pays nothing for it, as under every model here.
std::shared_ptr<const CostModel> MakeAnalyticCostModel();

}  // namespace neuroshard
