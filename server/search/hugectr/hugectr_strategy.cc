#include "server/search/hugectr/hugectr_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "server/evaluate/lay_out.h"
#include "server/search/hugectr/hugectr_planner.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

constexpr ShardLayout kReplica{ShardingType::kDataParallel, ComputeKernel::kDense, 1};

// The ranks of each bucket, ascending.
std::vector<std::vector<int>> Buckets(const PlanRequest& request) {
  std::vector<std::vector<int>> buckets;
  if (!request.search.hugectr.hierarchical) {
    for (int r = 0; r < request.topology.num_ranks(); ++r) buckets.push_back({r});
    return buckets;
  }
  for (const HostRanks& host : request.topology.hosts()) {
    std::vector<int>& ranks = buckets.emplace_back(static_cast<std::size_t>(host.count));
    std::iota(ranks.begin(), ranks.end(), host.first);
  }
  return buckets;
}

HugeCtrProblem MakeProblem(const PlanRequest& request,
                           const std::vector<std::vector<int>>& buckets) {
  HugeCtrProblem problem;
  problem.options = request.search.hugectr;
  // What the planner replicates by: weights and optimizer state, whatever the request's memory
  // rule.
  PlanRequest full;
  full.optimizer = request.optimizer;
  for (const Table& table : request.tables) {
    const MemoryUse use = ShardMemory(full, table, table.num_embeddings, table.embedding_dim);
    const std::int64_t bytes = use.row_bytes();
    problem.tables.push_back({table.pooling_factor, 1e-9 * static_cast<double>(bytes)});
  }
  const std::vector<std::int64_t> available = AvailableBytes(request);
  for (const std::vector<int>& ranks : buckets) {
    std::int64_t least = available[static_cast<std::size_t>(ranks.front())];
    for (const int rank : ranks) {
      least = std::min(least, available[static_cast<std::size_t>(rank)]);
    }
    problem.bucket_capacity.push_back(static_cast<double>(least));
  }
  const int ranks_per_bucket = static_cast<int>(buckets.front().size());
  problem.shard_memory = [&request, ranks_per_bucket](int table, int holders) {
    const Table& of = request.tables[static_cast<std::size_t>(table)];
    const int shards = holders * ranks_per_bucket;
    const ShardLayout layout =
        shards == 1 ? ShardLayout{}
                    : ShardLayout{ShardingType::kRowWiseSubset, ComputeKernel::kFused, shards};
    const std::int64_t most_rows = EvenBlocks(of.num_embeddings, shards).front().size;
    return static_cast<double>(
        ShardMemory(request, of, layout, most_rows, of.embedding_dim).total_bytes());
  };
  problem.replica_memory = [&request](int table) {
    const Table& of = request.tables[static_cast<std::size_t>(table)];
    return static_cast<double>(
        ShardMemory(request, of, kReplica, of.num_embeddings, of.embedding_dim).total_bytes());
  };
  return problem;
}

// `hosts`: Topology::hosts().
void PlaceRows(const Table& table, const std::vector<int>& holders,
               const std::vector<std::vector<int>>& buckets, const std::vector<HostRanks>& hosts,
               TablePlan& plan) {
  std::vector<int> ranks;
  for (const int bucket : holders) {
    const std::vector<int>& of = buckets[static_cast<std::size_t>(bucket)];
    ranks.insert(ranks.end(), of.begin(), of.end());
  }
  plan.sharding_type = holders.empty()     ? kReplica.type
                       : ranks.size() == 1 ? ShardingType::kTableWise
                                           : ShardingType::kRowWiseSubset;
  if (holders.empty()) plan.compute_kernel = kReplica.kernel;
  const Block columns = {0, table.embedding_dim};
  plan.shards = LayOut(table, plan.sharding_type, {&columns, 1}, ranks, hosts, {});
}

}  // namespace

Status HugeCtrStrategy::Search(SearchContext& context) const {
  const PlanRequest& request = context.request();
  if (request.search.hugectr.hierarchical &&
      (request.topology.hosts().size() < 2 || request.topology.ranks_per_host() == 0)) {
    Violations violations;
    violations.Add("search.hugectr.hierarchical",
                   "needs two hosts or more, all with the same number of ranks");
    return violations.ToStatus();
  }
  const std::vector<std::vector<int>> buckets = Buckets(request);
  HugeCtrPlanner planner(MakeProblem(request, buckets));
  std::optional<HugeCtrCandidate> best;
  while (!context.ShouldStop()) {
    auto candidate = planner.Next([&] { return context.ShouldStop(); });
    if (!candidate) break;
    ++context.statistics().plans_evaluated;
    if (!best || candidate->max_cost < best->max_cost) best = std::move(candidate);
  }
  if (!best) {
    if (context.stopped()) return absl::OkStatus();
    return WithReason(
        FailedPrecondition("no plan was found: no candidate of 'hugectr_auto' fits, not even every "
                           "table cut over all ranks"),
        FailureReason::kNoPlanFound);
  }
  Plan plan = UnplacedTables(request);
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    PlaceRows(request.tables[t], best->holders[t], buckets, request.topology.hosts(),
              plan.tables[t]);
  }
  return context.Improve(std::move(plan));
}

}  // namespace neuroshard
