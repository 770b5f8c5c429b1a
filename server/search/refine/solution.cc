#include "server/search/refine/solution.h"

#include <algorithm>
#include <utility>

namespace neuroshard {

Solution::Solution(const PlanRequest& request, const ShardBook& book)
    : request_(&request), book_(&book), hosts_(request.topology.hosts()) {
  const std::size_t ranks = request.topology.devices.size();
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    host_of_rank_.insert(host_of_rank_.end(), static_cast<std::size_t>(hosts_[h].count),
                         static_cast<int>(h));
  }
  of_table_.resize(request.tables.size());
  on_rank_.resize(ranks);
  on_host_.resize(hosts_.size());
  ranks_.resize(ranks);
  sums_.resize(ranks * book.width(), 0.0);
}

int Solution::Add(const Unit& unit) {
  int id;
  if (free_ids_.empty()) {
    id = static_cast<int>(units_.size());
    units_.push_back(unit);
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
    units_[static_cast<std::size_t>(id)] = unit;
  }
  of_table_[static_cast<std::size_t>(unit.table)].push_back(id);
  if (std::vector<int>* const list = PlaceList(unit)) list->push_back(id);
  Apply(unit, 1);
  return id;
}

void Solution::Remove(int id) {
  const Unit unit = units_[static_cast<std::size_t>(id)];
  std::erase(of_table_[static_cast<std::size_t>(unit.table)], id);
  if (std::vector<int>* const list = PlaceList(unit)) std::erase(*list, id);
  free_ids_.push_back(id);
  Apply(unit, -1);
}

void Solution::Clear() {
  units_.clear();
  free_ids_.clear();
  for (auto* lists : {&of_table_, &on_rank_, &on_host_}) {
    for (std::vector<int>& list : *lists) list.clear();
  }
  std::fill(ranks_.begin(), ranks_.end(), Rank{});
  std::fill(sums_.begin(), sums_.end(), 0.0);
}

std::vector<Unit> Solution::Units() const {
  std::vector<Unit> units;
  units.reserve(units_.size() - free_ids_.size());
  for (const std::vector<int>& ids : of_table_) {
    for (const int id : ids) units.push_back(unit(id));
  }
  return units;
}

int Solution::RankOf(const Unit& unit, int i) const {
  switch (unit.spread()) {
    case Spread::kRank:
      return unit.place;
    case Spread::kHost:
      return host(unit.place).first + i;
    case Spread::kSubset:
      return subset(unit.place)[static_cast<std::size_t>(i)];
    case Spread::kRows:
    case Spread::kCopies:
      break;
  }
  return i;
}

int Solution::AddSubset(std::vector<int> ranks) {
  subsets_.push_back(std::move(ranks));
  return static_cast<int>(subsets_.size()) - 1;
}

void Solution::Apply(const Unit& unit, int sign) {
  const std::size_t width = book_->width();
  for (int i = 0; i < unit.shards.count; ++i) {
    const int shard = unit.shards.at(i);
    const std::size_t r = static_cast<std::size_t>(RankOf(unit, i));
    Rank& rank = ranks_[r];
    const CommLoad& load = book_->load(shard);
    rank.forward_load += sign * static_cast<double>(load.forward);
    rank.backward_load += sign * static_cast<double>(load.backward);
    rank.single_costs_ms += sign * static_cast<double>(book_->single_cost_ms(shard));
    rank.bytes += sign * book_->bytes(shard);
    rank.shards += sign;
    rank.content += sign > 0 ? ContentOf(shard) : -ContentOf(shard);
    const float* const phi = book_->phi(shard);
    double* const sum = sums_.data() + r * width;
    for (std::size_t w = 0; w < width; ++w) sum[w] += sign * static_cast<double>(phi[w]);
  }
}

std::vector<int>* Solution::PlaceList(const Unit& unit) {
  switch (unit.spread()) {
    case Spread::kRank:
      return &on_rank_[static_cast<std::size_t>(unit.place)];
    case Spread::kHost:
      return &on_host_[static_cast<std::size_t>(unit.place)];
    case Spread::kRows:
    case Spread::kCopies:
    case Spread::kSubset:
      break;
  }
  return nullptr;
}

}  // namespace neuroshard
