#include "server/search/hugectr/hugectr_planner.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "common/base/positions.h"

namespace neuroshard {

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
  const bool replicas_fit = std::all_of(greedy_capacity_.begin(), greedy_capacity_.end(),
                                        [](double left) { return left >= 0; });
  if (!replicas_fit) iterations_left_ = 0;
  SortShards();
}

double HugeCtrPlanner::ShardHotness(int table) const {
  const std::size_t t = static_cast<std::size_t>(table);
  return problem_.tables[t].hotness / num_shards_[t];
}

void HugeCtrPlanner::SortShards() {
  std::stable_sort(shards_.begin(), shards_.end(),
                   [&](int a, int b) { return ShardHotness(a) < ShardHotness(b); });
  std::reverse(shards_.begin(), shards_.end());
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
  const auto least =
      std::min_element(problem_.bucket_capacity.begin(), problem_.bucket_capacity.end());
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
    const auto place = std::find_if(
        cheapest_first.begin(), cheapest_first.end(), [&](const std::pair<double, int>& bucket) {
          return memory <= room[static_cast<std::size_t>(bucket.second)] &&
                 std::find(holders.begin(), holders.end(), bucket.second) == holders.end();
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
  for (std::vector<int>& holders : candidate.holders) std::sort(holders.begin(), holders.end());
  candidate.max_cost = *std::max_element(costs.begin(), costs.end());
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

}  // namespace neuroshard
