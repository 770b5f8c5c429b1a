#include "server/evaluate/plan_intervals.h"

#include <cassert>
#include <cstddef>
#include <vector>

#include "server/evaluate/resolved_shards.h"
#include "server/evaluate/total_interval.h"

namespace neuroshard {
namespace {

// The ranks' shards as the model sees them, and what they load the network with, not yet priced.
struct RankContents {
  std::vector<std::vector<ShardFeatures>> shards;
  std::vector<RankComm> comm;
};

RankContents ContentsOf(const PricingConditions& conditions,
                        const std::vector<ResolvedShard>& resolved, const CostModel& model) {
  std::vector<ShardFeatures> features;
  for (const ResolvedShard& shard : resolved) features.push_back(FeaturesOf(shard));
  std::vector<float> phi(features.size() * static_cast<std::size_t>(model.representation_width()));
  std::vector<CommLoad> loads(features.size());
  if (!features.empty()) model.Represent(conditions, features, phi, loads);
  RankContents contents;
  contents.shards.resize(static_cast<std::size_t>(conditions.num_ranks));
  contents.comm.resize(contents.shards.size());
  for (std::size_t i = 0; i < features.size(); ++i) {
    const std::size_t rank = static_cast<std::size_t>(resolved[i].shard->rank);
    contents.shards[rank].push_back(features[i]);
    contents.comm[rank].load += loads[i];
  }
  return contents;
}

void AddComputeIntervals(const PricingConditions& conditions,
                         std::vector<std::vector<ShardFeatures>> shards, const CostModel& model,
                         PlanCost& cost) {
  std::vector<std::size_t> busy;  // ranks that hold something
  std::vector<std::vector<ShardFeatures>> shards_of_busy;
  std::vector<ComputeCost> costs;
  for (std::size_t r = 0; r < shards.size(); ++r) {
    if (shards[r].empty()) continue;
    const RankCost& rank = cost.ranks[r];
    busy.push_back(r);
    shards_of_busy.push_back(std::move(shards[r]));
    costs.push_back({static_cast<float>(rank.compute_ms),
                     static_cast<float>(rank.forward_compute_ms.value_or(0)),
                     static_cast<float>(rank.backward_compute_ms.value_or(0))});
  }
  const std::vector<ComputeInterval> intervals =
      model.ComputeIntervals(conditions, shards_of_busy, costs);
  if (!busy.empty() && intervals.empty()) return;  // the model does not say
  assert(intervals.size() == busy.size());
  const bool splits = model.info().splits_compute;
  for (RankCost& rank : cost.ranks) {
    rank.intervals.compute = CostInterval{};
    if (!splits) continue;
    rank.intervals.forward_compute = CostInterval{};
    rank.intervals.backward_compute = CostInterval{};
  }
  for (std::size_t i = 0; i < busy.size(); ++i) {
    RankIntervals& of_rank = cost.ranks[busy[i]].intervals;
    of_rank.compute = intervals[i].total;
    of_rank.forward_compute = intervals[i].forward;
    of_rank.backward_compute = intervals[i].backward;
  }
}

void AddCommIntervals(std::vector<RankComm> ranks, const CostModel& model, PlanCost& cost) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankCost& rank = cost.ranks[r];
    ranks[r].start_offset_ms = rank.start_offset_ms;
    ranks[r].forward_ms = rank.forward_comm_ms;
    ranks[r].backward_ms = rank.backward_comm_ms;
  }
  const std::vector<CommInterval> intervals = model.CommIntervals(ranks);
  if (intervals.empty()) return;
  assert(intervals.size() == ranks.size());
  for (std::size_t r = 0; r < intervals.size(); ++r) {
    cost.ranks[r].intervals.forward_comm = intervals[r].forward;
    cost.ranks[r].intervals.backward_comm = intervals[r].backward;
  }
}

}  // namespace

Status AddIntervals(const PlanRequest& request, const Plan& plan, const CostModel& model,
                    PlanCost& cost) {
  const double coverage = model.info().interval_coverage;
  if (coverage == 0) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const std::vector<ResolvedShard> resolved, ResolveShards(request, plan));
  const PricingConditions conditions = ConditionsOf(request);
  RankContents contents = ContentsOf(conditions, resolved, model);
  AddComputeIntervals(conditions, std::move(contents.shards), model, cost);
  AddCommIntervals(std::move(contents.comm), model, cost);
  for (RankCost& rank : cost.ranks) rank.intervals.total = TotalInterval(rank);
  cost.interval_coverage = coverage;
  cost.interval = EmbeddingCostInterval(cost.ranks, coverage);
  return absl::OkStatus();
}

}  // namespace neuroshard
