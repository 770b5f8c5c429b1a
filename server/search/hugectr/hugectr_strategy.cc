#include "server/search/hugectr/hugectr_strategy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
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

}  // namespace

HugeCtrPlanner::HugeCtrPlanner(HugeCtrProblem problem)
    : problem_(std::move(problem)),
      cost_per_shard_(problem_.options.bandwidth_ratio / problem_.options.work_ratio),
      greedy_capacity_(problem_.bucket_capacity),
      num_shards_(problem_.tables.size(), 1),
      iterations_left_(problem_.options.iterations) {
  for (std::size_t t = 0; t < problem_.tables.size(); ++t) {
    const int table = static_cast<int>(t);
    if (problem_.tables[t].gigabytes < problem_.options.data_parallel_threshold_gb) {
      replicated_.push_back(table);
      num_shards_[t] = 0;
      for (double& left : greedy_capacity_) left -= problem_.replica_memory(table);
    } else {
      shards_.push_back(table);
    }
  }
  const bool replicas_fit =
      std::ranges::all_of(greedy_capacity_, [](double left) { return left >= 0; });
  if (!replicas_fit) iterations_left_ = 0;
  SortShards();
}

double HugeCtrPlanner::ShardHotness(int table) const {
  const std::size_t t = static_cast<std::size_t>(table);
  return problem_.tables[t].hotness / num_shards_[t];
}

void HugeCtrPlanner::SortShards() {
  std::ranges::stable_sort(shards_,
                           [&](int a, int b) { return ShardHotness(a) < ShardHotness(b); });
  std::ranges::reverse(shards_);
}

bool HugeCtrPlanner::Double(int table) {
  int& count = num_shards_[static_cast<std::size_t>(table)];
  if (2 * count > num_buckets()) return false;
  count *= 2;
  std::erase(shards_, table);
  shards_.insert(shards_.end(), static_cast<std::size_t>(count), table);
  SortShards();
  return true;
}

bool HugeCtrPlanner::DoubleFirst() {
  for (const int table : shards_) {
    if (Double(table)) return true;  // changes shards_, so nothing after it
  }
  return false;
}

std::optional<HugeCtrCandidate> HugeCtrPlanner::Uniform() const {
  HugeCtrCandidate candidate;
  const std::vector<int> all = Positions<int>(problem_.bucket_capacity.size());
  double memory = 0;
  for (std::size_t t = 0; t < problem_.tables.size(); ++t) {
    memory += problem_.shard_memory(static_cast<int>(t), num_buckets());
    candidate.max_cost += problem_.tables[t].hotness / num_buckets() + cost_per_shard_;
    candidate.holders.push_back(all);
  }
  const auto least = std::ranges::min_element(problem_.bucket_capacity);
  if (memory > *least) return std::nullopt;
  return candidate;
}

HugeCtrPlanner::Attempt HugeCtrPlanner::PlaceShards(
    const std::function<bool()>& should_stop) const {
  Attempt attempt;
  HugeCtrCandidate candidate;
  candidate.holders.resize(problem_.tables.size());
  std::vector<double> costs(greedy_capacity_.size(), 0);
  std::vector<double> room = greedy_capacity_;
  std::set<std::pair<double, int>> cheapest_first;
  for (int b = 0; b < num_buckets(); ++b) cheapest_first.emplace(0.0, b);
  for (const int table : shards_) {
    if (should_stop()) return attempt;
    const std::size_t t = static_cast<std::size_t>(table);
    std::vector<int>& holders = candidate.holders[t];
    const double memory = problem_.shard_memory(table, num_shards_[t]);
    const auto place =
        std::ranges::find_if(cheapest_first, [&](const std::pair<double, int>& bucket) {
          return memory <= room[static_cast<std::size_t>(bucket.second)] &&
                 std::ranges::find(holders, bucket.second) == holders.end();
        });
    if (place == cheapest_first.end()) {
      attempt.homeless_table = table;
      return attempt;
    }
    const int bucket = place->second;
    const std::size_t b = static_cast<std::size_t>(bucket);
    cheapest_first.erase(place);
    costs[b] += ShardHotness(table) + cost_per_shard_;
    room[b] -= memory;
    cheapest_first.emplace(costs[b], bucket);
    holders.push_back(bucket);
  }
  for (std::vector<int>& holders : candidate.holders) std::ranges::sort(holders);
  candidate.max_cost = *std::ranges::max_element(costs);
  attempt.candidate = std::move(candidate);
  return attempt;
}

std::optional<HugeCtrCandidate> HugeCtrPlanner::Next(const std::function<bool()>& should_stop) {
  if (!uniform_done_) {
    uniform_done_ = true;
    if (auto uniform = Uniform()) return uniform;
  }
  while (iterations_left_ > 0) {
    --iterations_left_;
    Attempt attempt = PlaceShards(should_stop);
    if (attempt.candidate) {
      DoubleFirst();
      return std::move(attempt.candidate);
    }
    if (attempt.homeless_table < 0 || !Double(attempt.homeless_table)) iterations_left_ = 0;
  }
  return std::nullopt;
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
