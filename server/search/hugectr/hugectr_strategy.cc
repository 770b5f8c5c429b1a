#include "server/search/hugectr/hugectr_strategy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/base/positions.h"
#include "common/base/violations.h"
#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "server/evaluate/lay_out.h"
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
    const auto room = Mapped(ranks, [&](int rank) { return At(available, rank); });
    problem.bucket_capacity.push_back(static_cast<double>(std::ranges::min(room)));
  }
  const int ranks_per_bucket = static_cast<int>(buckets.front().size());
  problem.shard_memory = [&request, ranks_per_bucket](int table, int holders) {
    const Table& of = request.tables[static_cast<std::size_t>(table)];
    const int shards = holders * ranks_per_bucket;
    const ShardLayout layout =
        shards == 1 ? ShardLayout{}
                    : ShardLayout{ShardingType::kRowWiseSubset, ComputeKernel::kFused, shards};
    const std::int64_t max_rows = EvenBlocks(of.num_embeddings, shards).front().size;
    return static_cast<double>(
        ShardMemory(request, of, layout, max_rows, of.embedding_dim).total_bytes());
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

// The rounds of ForEachHugeCtrCandidate. Both arguments must outlive it.
class HugeCtrPlanner {
 public:
  HugeCtrPlanner(const HugeCtrProblem& problem, const std::function<bool()>& should_stop)
      : problem_(problem),
        should_stop_(should_stop),
        cost_per_shard_(problem.options.bandwidth_ratio / problem.options.work_ratio),
        room_beside_replicas_(problem.bucket_capacity),
        num_shards_(problem.tables.size(), 1) {
    for (int table = 0; table < static_cast<int>(problem.tables.size()); ++table) {
      if (At(problem.tables, table).gigabytes < problem.options.data_parallel_threshold_gb) {
        At(num_shards_, table) = 0;
        for (double& left : room_beside_replicas_) left -= problem.replica_memory(table);
      } else {
        shards_.push_back(table);
      }
    }
    SortShards();
  }

  void Run(const std::function<void(HugeCtrCandidate)>& visit) {
    if (should_stop_()) return;
    if (auto uniform = Uniform()) visit(*std::move(uniform));
    if (std::ranges::any_of(room_beside_replicas_, [](double left) { return left < 0; })) return;
    for (int round = 0; round < problem_.options.iterations && !should_stop_(); ++round) {
      int homeless_table = -1;
      if (auto candidate = PlaceShards(homeless_table)) {
        visit(*std::move(candidate));
        for (const int table : std::vector<int>(shards_)) {  // a copy, as cutting sorts anew
          if (Double(table)) break;
        }
      } else if (homeless_table < 0 || !Double(homeless_table)) {
        return;
      }
    }
  }

 private:
  int num_buckets() const { return static_cast<int>(problem_.bucket_capacity.size()); }
  double ShardHotness(int table) const {
    return At(problem_.tables, table).hotness / At(num_shards_, table);
  }

  void SortShards() {
    std::ranges::stable_sort(shards_, {}, [&](int table) { return ShardHotness(table); });
    std::ranges::reverse(shards_);
  }

  // Cuts the table into twice as many shards, if it may have them.
  bool Double(int table) {
    int& count = At(num_shards_, table);
    if (2 * count > num_buckets()) return false;
    count *= 2;
    std::erase(shards_, table);
    shards_.insert(shards_.end(), static_cast<std::size_t>(count), table);
    SortShards();
    return true;
  }

  std::optional<HugeCtrCandidate> Uniform() const {
    HugeCtrCandidate candidate;
    double memory = 0;
    for (std::size_t t = 0; t < problem_.tables.size(); ++t) {
      memory += problem_.shard_memory(static_cast<int>(t), num_buckets());
      candidate.max_cost += problem_.tables[t].hotness / num_buckets() + cost_per_shard_;
      candidate.holders.push_back(Positions<int>(problem_.bucket_capacity.size()));
    }
    if (memory > *std::ranges::min_element(problem_.bucket_capacity)) return std::nullopt;
    return candidate;
  }

  // Puts all shards into buckets. nullopt: one found no room, and `homeless_table` is its table; or
  // the search is to stop, and `homeless_table` is as it was.
  std::optional<HugeCtrCandidate> PlaceShards(int& homeless_table) const {
    HugeCtrCandidate candidate;
    candidate.holders.resize(problem_.tables.size());
    std::vector<double> costs(problem_.bucket_capacity.size(), 0);
    std::vector<double> room = room_beside_replicas_;
    std::set<std::pair<double, int>> cheapest_first;
    for (int b = 0; b < num_buckets(); ++b) cheapest_first.emplace(0.0, b);
    for (const int table : shards_) {
      if (should_stop_()) return std::nullopt;
      std::vector<int>& holders = At(candidate.holders, table);
      const double memory = problem_.shard_memory(table, At(num_shards_, table));
      const auto place = std::ranges::find_if(cheapest_first, [&](const auto& bucket) {
        return memory <= At(room, bucket.second) &&
               std::ranges::find(holders, bucket.second) == holders.end();
      });
      if (place == cheapest_first.end()) {
        homeless_table = table;
        return std::nullopt;
      }
      const int bucket = place->second;
      cheapest_first.erase(place);
      At(costs, bucket) += ShardHotness(table) + cost_per_shard_;
      At(room, bucket) -= memory;
      cheapest_first.emplace(At(costs, bucket), bucket);
      holders.push_back(bucket);
    }
    for (std::vector<int>& holders : candidate.holders) std::ranges::sort(holders);
    candidate.max_cost = *std::ranges::max_element(costs);
    return candidate;
  }

  const HugeCtrProblem& problem_;
  const std::function<bool()>& should_stop_;
  const double cost_per_shard_;
  std::vector<double> room_beside_replicas_;  // by bucket
  std::vector<int> num_shards_;               // by table; 0: replicated
  std::vector<int> shards_;                   // table of each, in the order of placing
};

}  // namespace

void ForEachHugeCtrCandidate(const HugeCtrProblem& problem,
                             const std::function<bool()>& should_stop,
                             const std::function<void(HugeCtrCandidate)>& visit) {
  HugeCtrPlanner(problem, should_stop).Run(visit);
}

Status RunHugeCtr(SearchContext& context) {
  const PlanRequest& request = context.request();
  if (request.search.hugectr.hierarchical &&
      (request.topology.hosts().size() < 2 || request.topology.ranks_per_host() == 0)) {
    Violations violations;
    violations.Add("search.hugectr.hierarchical",
                   "needs two hosts or more, all with the same number of ranks");
    return violations.ToStatus();
  }
  const std::vector<std::vector<int>> buckets = Buckets(request);
  std::optional<HugeCtrCandidate> best;
  ForEachHugeCtrCandidate(
      MakeProblem(request, buckets), [&] { return context.ShouldStop(); },
      [&](HugeCtrCandidate candidate) {
        ++context.statistics().plans_evaluated;
        if (!best || candidate.max_cost < best->max_cost) best = std::move(candidate);
      });
  if (!best) {
    if (context.stopped()) return absl::OkStatus();
    return WithReason(FailedPrecondition("no plan was found: no candidate of 'hugectr_auto' fits, "
                                         "not even every table cut over all ranks"),
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
