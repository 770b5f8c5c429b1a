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
      claims_(static_cast<std::size_t>(rules.num_claims())) {}

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
  return std::ranges::none_of(of.claims, [&](const GroupClaims& claims) {
    const auto [at, by] = ClaimOf(claims, table, rank);
    return At(claims_, at).shards > 0 && At(claims_, at).by != by;
  });
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
  for (const GroupClaims& claims : of.claims) {
    const auto [at, by] = ClaimOf(claims, table, rank);
    Claim& claim = At(claims_, at);
    if (sign > 0) claim.by = by;
    claim.shards += sign;
  }
}

bool RuleState::AllowsOnEachRank(int table) const {
  const TableRules& of = rules_->of(table);
  if (!of.ranks->all()) return false;
  if (of.rank_group >= 0 && rules_->num_ranks() > 1) return false;
  if (of.host_group >= 0 && rules_->hosts().size() > 1) return false;
  if (of.claims.empty() && rules_->max_shards_per_rank() == INT_MAX && !counts_tables_) return true;
  for (int rank = 0; rank < rules_->num_ranks(); ++rank) {
    if (!Allows(table, rank)) return false;
  }
  return true;
}

void RuleState::CountOnEachRank(int table, int sign) {
  if (rules_->of(table).claims.empty()) {
    on_each_rank_ += sign;
    return;
  }
  for (int rank = 0; rank < rules_->num_ranks(); ++rank) Count(table, rank, sign);
}

}  // namespace neuroshard
