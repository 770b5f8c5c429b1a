// TorchRec 1.9.2's formulas over the request's bandwidths: the built-in cost model, and models of a
// HardwarePerfConfig's coefficients.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "server/cost/analytic/shard_perf.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

inline constexpr std::string_view kAnalyticModelName = "analytic";

// Returns the model "analytic", version 1. It prices any number of ranks and every sharding type,
// and a plan as TorchRec rates it (NoopPerfModel): the largest sum over a rank's shards of
// ShardPerf::total_ms(). phi and CommLoad are the four times of a shard in ms, so compute is
// additive and communication separable. Costs are floats: formulas are exact to 1e-12, sums of a
// plan to about 1e-7 for each shard of a rank.
//
// It differs from TorchRec where a request has other words:
// - a rank has global batch / ranks samples, which need not be whole;
// - rows of fused_uvm_caching that train_prefetch_sparse_dist fetches are those that
//   ExpectedCacheHits misses, where TorchRec takes CacheStatistics; their time is forward compute.
//   Without that pipeline, prices are TorchRec's without CacheStatistics;
// - output_dtype changes no time, as in TorchRec;
// - L is the number of ranks of the largest host, and a table_row_wise or grid_shard table divides
//   its ids by the ranks that hold its rows;
// - row_wise_subset is row_wise with ids divided by its holders;
// - a single rank pays nothing for communication, as under every model here.
std::shared_ptr<const CostModel> MakeAnalyticCostModel();

// Returns the formulas with these coefficients, as the model `info`, of which kind, sharding types
// and properties are filled in. Rows in blocks over some ranks have those of row_wise; types and
// kernels that are not listed, and all exchanges, are as above.
std::shared_ptr<const CostModel> MakeAnalyticCostModel(
    CostModelInfo info, std::vector<KernelCoefficients> coefficients);

}  // namespace neuroshard
