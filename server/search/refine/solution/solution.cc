#include "server/search/refine/solution/solution.h"

#include <algorithm>
#include <utility>

namespace neuroshard {

Solution::Solution(const PlanRequest& request, const CompiledRules& rules,
                   const ShardTable& shard_table)
    : rules_(&rules),
      shard_table_(&shard_table),
      constrained_(!request.constraints.empty()),
      rule_state_(rules),
      all_pools_(request),
      pools_(all_pools_),
      of_table_(request.tables.size()),
      on_rank_(request.topology.devices.size()),
      on_host_(rules.hosts().size()),
      ranks_(request.topology.devices.size()),
      sums_(ranks_.size() * shard_table.width(), 0.0) {}

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
  PlaceList(unit).push_back(id);
  Apply(unit, 1);
  if (constrained_) CountForRules(unit, 1);
  return id;
}

void Solution::Remove(int id) {
  const Unit unit = units_[static_cast<std::size_t>(id)];
  std::erase(of_table_[static_cast<std::size_t>(unit.table)], id);
  std::erase(PlaceList(unit), id);
  free_ids_.push_back(id);
  Apply(unit, -1);
  if (constrained_) CountForRules(unit, -1);
}

void Solution::Clear() {
  if (constrained_) rule_state_ = RuleState(*rules_);
  units_.clear();
  free_ids_.clear();
  for (auto* lists : {&of_table_, &on_rank_, &on_host_}) {
    for (std::vector<int>& list : *lists) list.clear();
  }
  wide_.clear();
  pools_ = all_pools_;
  kinds_ = {};
  moved_bytes_ = 0;
  std::ranges::fill(ranks_, Rank{});
  std::ranges::fill(sums_, 0.0);
}

void Solution::Fix(FixedTables fixed, std::vector<Unit> units) {
  fixed_ = std::move(fixed);
  fixed_units_ = std::move(units);
  Clear();
}

void Solution::CountMoves(MigrationTerms terms) {
  terms_.emplace(std::move(terms));
  Clear();
}

double Solution::MovesMs(std::span<const int> removed, std::span<const Unit> added) const {
  return terms_ ? terms_->PriceMs(moved_bytes_ + MoreMovedBytes(removed, added)) : 0;
}

std::vector<Unit> Solution::Units() const {
  std::vector<Unit> units;
  Units(units);
  return units;
}

void Solution::Units(std::vector<Unit>& units) const {
  units.clear();
  units.reserve(units_.size() - free_ids_.size());
  for (const std::vector<int>& ids : of_table_) {
    for (const int id : ids) units.push_back(unit(id));
  }
}

int Solution::AddSubset(std::vector<int> ranks) {
  const auto [entry, added] =
      subset_numbers_.emplace(std::move(ranks), static_cast<int>(subsets_.size()));
  if (added) subsets_.push_back(entry->first);
  return entry->second;
}

ShardKinds Solution::KindsAfter(std::span<const int> removed, std::span<const Unit> added) const {
  KindCounts after = kinds_;
  for (const int id : removed) after.Add(KindsOf(unit(id)), -1);
  for (const Unit& unit : added) after.Add(KindsOf(unit), 1);
  return after.Present();
}

void Solution::Apply(const Unit& unit, int sign) {
  kinds_.Add(KindsOf(unit), sign);
  if (terms_) moved_bytes_ += sign * MovedBytes(unit);
  const std::size_t width = shard_table_->width();
  ForEachShard(unit, [&](int rank, int shard) {
    const std::size_t r = static_cast<std::size_t>(rank);
    ranks_[r].Count(*shard_table_, rank, shard, sign);
    pools_.Add(rank, shard_table_->tier_bytes(shard), sign);
    const float* const phi = shard_table_->phi(shard);
    double* const sum = sums_.data() + r * width;
    for (std::size_t w = 0; w < width; ++w) sum[w] += sign * static_cast<double>(phi[w]);
  });
}

void Solution::CountForRules(const Unit& unit, int sign) {
  if (TakesEveryRank(unit.type)) {
    if (sign > 0) {
      rule_state_.AddOnEachRank(unit.table);
    } else {
      rule_state_.RemoveOnEachRank(unit.table);
    }
    return;
  }
  ForEachShard(unit, [&](int rank, int /*shard*/) {
    if (sign > 0) {
      rule_state_.Add(unit.table, rank);
    } else {
      rule_state_.Remove(unit.table, rank);
    }
  });
}

bool Solution::TryForRules(const Unit& unit) {
  if (TakesEveryRank(unit.type)) {
    if (!rule_state_.AllowsOnEachRank(unit.table)) return false;
    rule_state_.AddOnEachRank(unit.table);
    return true;
  }
  for (int i = 0; i < unit.shards.count; ++i) {
    if (!rule_state_.Allows(unit.table, RankOf(unit, i))) {
      while (--i >= 0) rule_state_.Remove(unit.table, RankOf(unit, i));
      return false;
    }
    rule_state_.Add(unit.table, RankOf(unit, i));
  }
  return true;
}

bool Solution::Allows(std::span<const int> removed, std::span<const Unit> added) {
  for (const int id : removed) {
    if (fixed(unit(id).table) != nullptr) return false;
  }
  if (!HasRoom(removed, added) || !KeepsToHosts(removed, added) || !KeepsApart(removed, added) ||
      !KeepsToMigrationBudget(removed, added)) {
    return false;
  }
  if (!constrained_) return true;
  if (!KeepsToShardLimits(removed, added)) return false;
  for (const int id : removed) CountForRules(unit(id), -1);
  std::size_t counted = 0;
  while (counted < added.size() && TryForRules(added[counted])) ++counted;
  const bool allowed = counted == added.size();
  while (counted > 0) CountForRules(added[--counted], -1);
  for (const int id : removed) CountForRules(unit(id), 1);
  return allowed;
}

double Solution::MovedBytes(const Unit& unit) const {
  return terms_->MovedBytes(unit, PlacesOf(unit));
}

double Solution::MoreMovedBytes(std::span<const int> removed, std::span<const Unit> added) const {
  double bytes = 0;
  for (const int id : removed) bytes -= MovedBytes(unit(id));
  for (const Unit& unit : added) bytes += MovedBytes(unit);
  return bytes;
}

bool Solution::KeepsToMigrationBudget(std::span<const int> removed,
                                      std::span<const Unit> added) const {
  if (!terms_) return true;
  const double more = MoreMovedBytes(removed, added);
  return more <= 0 || more <= terms_->budget_bytes() - moved_bytes_;
}

bool Solution::HasRoom(std::span<const int> removed, std::span<const Unit> added) {
  if (removed.empty() && added.size() == 1) {
    const Unit& unit = added.front();  // one shard a rank
    for (int i = 0; i < unit.shards.count; ++i) {
      if (!Fits(RankOf(unit, i), shard_table_->bytes(unit.shards.at(i)))) return false;
    }
    if (!IsInSharedMemory(unit)) return true;
  }
  const auto count = [&](const Unit& unit, int sign) {
    ForEachShard(unit, [&](int rank, int shard) {
      pools_.Add(rank, shard_table_->tier_bytes(shard), sign);
    });
  };
  for (const int id : removed) count(unit(id), -1);
  for (const Unit& unit : added) count(unit, 1);
  const bool has_room = std::ranges::all_of(added, [&](const Unit& unit) {
    const bool is_shared = IsInSharedMemory(unit);
    for (int i = 0; i < unit.shards.count; ++i) {
      const int rank = RankOf(unit, i);
      if (LeftBytes(rank) < 0 || (is_shared && pools_.SharesTooMuch(rank))) return false;
    }
    return true;
  });
  for (const Unit& unit : added) count(unit, -1);
  for (const int id : removed) count(unit(id), 1);
  return has_room;
}

bool Solution::KeepsToShardLimits(std::span<const int> removed, std::span<const Unit> added) const {
  return std::ranges::all_of(added, [&](const Unit& unit) {
    int shards = 0;
    for (const Unit& other : added) shards += other.table == unit.table ? other.shards.count : 0;
    for (const int id : units_of_table(unit.table)) {
      if (std::ranges::find(removed, id) == removed.end()) {
        shards += this->unit(id).shards.count;
      }
    }
    return shards <= rules_->of(unit.table).max_shards;
  });
}

bool Solution::KeepsToHosts(std::span<const int> removed, std::span<const Unit> added) const {
  for (const Unit& unit : added) {
    const bool columns = unit.type == ShardingType::kTableColumnWise;
    if (!columns && unit.spread() != Spread::kOneHost) continue;
    const auto together = [&](const Unit& other) {
      return columns ? host_of(other.place) == host_of(unit.place)
                     : other.shards.count == unit.shards.count;
    };
    for (const Unit& other : added) {
      if (other.table == unit.table && !together(other)) return false;
    }
    for (const int id : units_of_table(unit.table)) {
      if (std::ranges::find(removed, id) == removed.end() && !together(this->unit(id))) {
        return false;
      }
    }
  }
  return true;
}

bool Solution::KeepsApart(std::span<const int> removed, std::span<const Unit> added) const {
  if (!rules_->has_off_device()) return true;
  // Units of the other spreads are the whole table.
  const auto may_meet = [](const Unit& unit) {
    return unit.spread() == Spread::kRank || unit.spread() == Spread::kOneHost;
  };
  for (std::size_t i = 0; i < added.size(); ++i) {
    const Unit& unit = added[i];
    if (!TraitsOf(rules_->residency(unit.residency).kernel).keeps_apart || !may_meet(unit)) {
      continue;
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (added[j].table == unit.table && added[j].place == unit.place) return false;
    }
    for (const int id : units_of_table(unit.table)) {
      if (this->unit(id).place == unit.place && std::ranges::find(removed, id) == removed.end()) {
        return false;
      }
    }
  }
  return true;
}

std::vector<int>& Solution::PlaceList(const Unit& unit) {
  const std::size_t place = static_cast<std::size_t>(unit.place);
  if (unit.spread() == Spread::kRank) return on_rank_[place];
  if (unit.spread() == Spread::kOneHost) return on_host_[place];
  return wide_;
}

}  // namespace neuroshard
