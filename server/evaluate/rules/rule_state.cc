#include "server/evaluate/rules/rule_state.h"

#include <algorithm>
#include <climits>
#include <cstddef>

namespace neuroshard {
namespace {

auto PlaceOf(auto& ranks, int rank) {
  return std::lower_bound(ranks.begin(), ranks.end(), rank,
                          [](const auto& entry, int r) { return entry.first < r; });
}

}  // namespace

RuleState::RuleState(const CompiledRules& rules)
    : rules_(&rules),
      counts_tables_(rules.max_tables_per_rank() != INT_MAX),
      shards_on_(static_cast<std::size_t>(rules.num_ranks())),
      tables_on_(static_cast<std::size_t>(rules.num_ranks())),
      ranks_of_(rules.tables().size()),
      rank_groups_(rules.rank_groups().size()),
      host_groups_(rules.host_groups().size()) {
  for (const TableGroup& group : rules.separate_groups()) {
    const std::size_t units = group.level == GroupLevel::kRank
                                  ? static_cast<std::size_t>(rules.num_ranks())
                                  : rules.hosts().size();
    separate_.emplace_back(units);
  }
}

bool RuleState::InGroup(int table) const {
  const TableRules& of = rules_->of(table);
  return of.rank_group >= 0 || of.host_group >= 0 || !of.separate_groups.empty();
}

int RuleState::ShardsOfTableOn(int table, int rank) const {
  const auto& ranks = At(ranks_of_, table);
  const auto at = PlaceOf(ranks, rank);
  return at != ranks.end() && at->first == rank ? at->second : 0;
}

bool RuleState::Allows(int table, int rank) const {
  const TableRules& of = rules_->of(table);
  if (!of.ranks->contains(rank) || shards_on(rank) >= rules_->max_shards_per_rank()) return false;
  if (of.distinct_ranks && ShardsOfTableOn(table, rank) > 0) return false;
  if (counts_tables_ && tables_on(rank) >= rules_->max_tables_per_rank() &&
      ShardsOfTableOn(table, rank) == 0) {
    return false;
  }
  if (of.rank_group >= 0 && At(rank_groups_, of.rank_group).Excludes(rank)) {
    return false;
  }
  if (of.host_group >= 0 && At(host_groups_, of.host_group).Excludes(rules_->host_of(rank))) {
    return false;
  }
  for (const int group : of.separate_groups) {
    const std::size_t g = static_cast<std::size_t>(group);
    const int unit = Unit(rules_->separate_groups()[g].level, rank);
    if (At(separate_[g], unit).Excludes(table)) return false;
  }
  return true;
}

void RuleState::Count(int table, int rank, int sign) {
  const TableRules& of = rules_->of(table);
  At(shards_on_, rank) += sign;
  if (counts_tables_ || of.distinct_ranks) {
    auto& ranks = At(ranks_of_, table);
    auto at = PlaceOf(ranks, rank);
    if (at == ranks.end() || at->first != rank) {
      at = ranks.insert(at, {rank, 0});
      ++At(tables_on_, rank);
    }
    at->second += sign;
    if (at->second == 0) {
      ranks.erase(at);
      --At(tables_on_, rank);
    }
  }
  const auto count = [&](Claim& place, int by) {
    if (sign > 0) place.by = by;
    place.shards += sign;
  };
  if (of.rank_group >= 0) count(At(rank_groups_, of.rank_group), rank);
  if (of.host_group >= 0) {
    count(At(host_groups_, of.host_group), rules_->host_of(rank));
  }
  for (const int group : of.separate_groups) {
    const std::size_t g = static_cast<std::size_t>(group);
    const int unit = Unit(rules_->separate_groups()[g].level, rank);
    count(At(separate_[g], unit), table);
  }
}

bool RuleState::AllowsOnEachRank(int table) const {
  const TableRules& of = rules_->of(table);
  if (!of.ranks->all()) return false;
  if (of.rank_group >= 0 && rules_->num_ranks() > 1) return false;
  if (of.host_group >= 0 && rules_->hosts().size() > 1) return false;
  if (!InGroup(table) && rules_->max_shards_per_rank() == INT_MAX && !counts_tables_) return true;
  for (int rank = 0; rank < rules_->num_ranks(); ++rank) {
    if (!Allows(table, rank)) return false;
  }
  return true;
}

void RuleState::CountOnEachRank(int table, int sign) {
  if (!InGroup(table)) {
    on_each_rank_ += sign;
    return;
  }
  for (int rank = 0; rank < rules_->num_ranks(); ++rank) Count(table, rank, sign);
}

}  // namespace neuroshard
