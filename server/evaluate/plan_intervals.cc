#include "server/evaluate/plan_intervals.h"

#include <cassert>
#include <cstddef>
#include <vector>

#include "common/domain/total_interval.h"
#include "server/evaluate/resolved_shards.h"

namespace neuroshard {
namespace {

CostInterval Scaled(const CostInterval& interval, double scale) {
  return {interval.low_ms * scale, interval.high_ms * scale};
}

void AddComputeIntervals(std::vector<std::vector<ShardFeatures>> shards,
                         const BoundCostModel& model, PlanCost& cost) {
  std::vector<std::size_t> busy;  // ranks that hold something
  std::vector<std::vector<ShardFeatures>> shards_of_busy;
  std::vector<ComputeCost> costs;
  std::vector<int> kinds;
  for (std::size_t r = 0; r < shards.size(); ++r) {
    if (shards[r].empty()) continue;
    const RankCost& rank = cost.ranks[r];
    busy.push_back(r);
    kinds.push_back(model.kind(r));
    shards_of_busy.push_back(std::move(shards[r]));
    const ComputeCost of_rank = {static_cast<float>(rank.compute_ms),
                                 static_cast<float>(rank.forward_compute_ms.value_or(0)),
                                 static_cast<float>(rank.backward_compute_ms.value_or(0))};
    costs.push_back(of_rank * (1 / model.compute_scale(r)));  // the model's intervals know no ranks
  }
  const std::vector<ComputeInterval> intervals =
      model.ComputeIntervals(shards_of_busy, costs, kinds);
  if (!busy.empty() && intervals.empty()) return;  // the model does not say
  assert(intervals.size() == busy.size());
  const bool splits = model.properties().splits_compute;
  for (RankCost& rank : cost.ranks) {
    rank.intervals.compute = CostInterval{};
    if (!splits) continue;
    rank.intervals.forward_compute = CostInterval{};
    rank.intervals.backward_compute = CostInterval{};
  }
  for (std::size_t i = 0; i < busy.size(); ++i) {
    RankIntervals& of_rank = cost.ranks[busy[i]].intervals;
    const double scale = model.compute_scale(busy[i]);
    of_rank.compute = Scaled(intervals[i].total, scale);
    if (intervals[i].forward) of_rank.forward_compute = Scaled(*intervals[i].forward, scale);
    if (intervals[i].backward) of_rank.backward_compute = Scaled(*intervals[i].backward, scale);
  }
}

void AddCommIntervals(const std::vector<std::vector<ShardFeatures>>& shards,
                      const BoundCostModel& model, PlanCost& cost) {
  std::vector<RankComm> ranks(shards.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const ShardFeatures& shard : shards[r]) ranks[r].load += model.comm().Load(shard);
    const RankCost& rank = cost.ranks[r];
    ranks[r].start_offset_ms = rank.start_offset_ms;
    ranks[r].forward_ms = rank.forward_comm_ms;
    ranks[r].backward_ms = rank.backward_comm_ms;
  }
  const std::vector<CommInterval> intervals = model.comm().Intervals(ranks);
  if (intervals.empty()) return;
  assert(intervals.size() == ranks.size());
  for (std::size_t r = 0; r < intervals.size(); ++r) {
    cost.ranks[r].intervals.forward_comm = intervals[r].forward;
    cost.ranks[r].intervals.backward_comm = intervals[r].backward;
  }
}

void AddInputDistIntervals(const BoundCostModel& model, PlanCost& cost) {
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    RankCost& rank = cost.ranks[r];
    const auto& input_dist = model.input_dist(model.kind(r));
    if (!input_dist || !rank.input_dist_ms) continue;
    rank.intervals.input_dist = input_dist->Interval(*rank.input_dist_ms);
  }
}

}  // namespace

Status AddIntervals(const PlanRequest& request, const Plan& plan, const BoundCostModel& model,
                    PlanCost& cost) {
  const double coverage = model.properties().interval_coverage;
  if (coverage == 0) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const std::vector<ResolvedShard> resolved, ResolveShards(request, plan));
  std::vector<std::vector<ShardFeatures>> shards = FeaturesByRank(resolved, model.num_ranks());
  AddCommIntervals(shards, model, cost);
  AddComputeIntervals(std::move(shards), model, cost);
  AddInputDistIntervals(model, cost);
  for (RankCost& rank : cost.ranks) rank.intervals.total = TotalInterval(rank);
  cost.interval_coverage = coverage;
  cost.interval = EmbeddingCostInterval(cost.ranks, coverage);
  return absl::OkStatus();
}

}  // namespace neuroshard
