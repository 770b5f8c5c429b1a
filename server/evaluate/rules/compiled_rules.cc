#include "server/evaluate/rules/compiled_rules.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/domain/shard_layout.h"

namespace neuroshard {
namespace {

// TorchRec's min_partition where a caller names none (sharding_plan.py).
constexpr std::int64_t kTorchRecMinPartition = 128;

int OrAny(int maximum) { return maximum == 0 ? INT_MAX : maximum; }

// Keeps one copy of each distinct set.
class RankSets {
 public:
  explicit RankSets(const std::vector<HostRanks>& hosts) : hosts_(hosts) {}

  std::shared_ptr<const RankSet> Of(std::vector<bool> has) {
    std::shared_ptr<const RankSet>& known = sets_[has];
    if (known == nullptr) known = std::make_shared<RankSet>(hosts_, std::move(has));
    return known;
  }

 private:
  const std::vector<HostRanks>& hosts_;
  std::unordered_map<std::vector<bool>, std::shared_ptr<const RankSet>> sets_;
};

bool NamesRanks(const TableRule& rule) {
  return !rule.ranks.empty() || !rule.forbidden_ranks.empty() || !rule.hosts.empty() ||
         !rule.forbidden_hosts.empty();
}

// The ranks that one rule leaves.
std::vector<bool> RanksOf(const TableRule& rule, const std::vector<HostRanks>& hosts,
                          std::size_t num_ranks) {
  std::vector<bool> has(num_ranks, rule.ranks.empty());
  for (const int rank : rule.ranks) has[static_cast<std::size_t>(rank)] = true;
  for (const int rank : rule.forbidden_ranks) has[static_cast<std::size_t>(rank)] = false;
  const auto forbid = [&](std::size_t host) {
    const auto first = has.begin() + hosts[host].first;
    std::fill(first, first + hosts[host].count, false);
  };
  if (!rule.hosts.empty()) {
    for (std::size_t host = 0; host < hosts.size(); ++host) {
      if (!std::binary_search(rule.hosts.begin(), rule.hosts.end(), static_cast<int>(host))) {
        forbid(host);
      }
    }
  }
  for (const int host : rule.forbidden_hosts) forbid(static_cast<std::size_t>(host));
  return has;
}

void Intersect(std::vector<bool>& has, const std::vector<bool>& other) {
  for (std::size_t i = 0; i < has.size(); ++i) has[i] = has[i] && other[i];
}

// Groups that share a table become one.
class Merged {
 public:
  explicit Merged(std::size_t tables) : parent_(tables), grouped_(tables) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  void Join(const std::vector<int>& tables) {
    for (const int table : tables) {
      grouped_[static_cast<std::size_t>(table)] = true;
      parent_[static_cast<std::size_t>(Root(table))] = Root(tables.front());
    }
  }

  bool Has(int table) const { return grouped_[static_cast<std::size_t>(table)]; }

  std::vector<std::vector<int>> Groups() {
    std::map<int, std::vector<int>> by_root;
    for (std::size_t table = 0; table < parent_.size(); ++table) {
      if (!grouped_[table]) continue;
      by_root[Root(static_cast<int>(table))].push_back(static_cast<int>(table));
    }
    std::vector<std::vector<int>> groups;
    for (auto& [root, tables] : by_root) groups.push_back(std::move(tables));
    return groups;
  }

 private:
  int Root(int table) {
    while (parent_[static_cast<std::size_t>(table)] != table) {
      int& parent = parent_[static_cast<std::size_t>(table)];
      parent = parent_[static_cast<std::size_t>(parent)];
      table = parent;
    }
    return table;
  }

  std::vector<int> parent_;
  std::vector<bool> grouped_;
};

// Whether some layout of the type keeps the table's own demands; see the header.
bool CanBe(ShardingType type, const Table& table, const TableRules& rules) {
  const RankSet& ranks = *rules.ranks;
  if (ranks.ranks().empty() || !IsTypeOf(table.kind, type)) return false;
  const bool one_rank = rules.rank_group >= 0;
  const bool one_host = rules.host_group >= 0;
  const int num_ranks = static_cast<int>(ranks.has().size());
  // Ranks that the shards of a table can be spread over, at most.
  const int most_of_a_host = one_rank ? 1 : ranks.most_of_a_host();
  const int most = one_rank || one_host ? most_of_a_host : static_cast<int>(ranks.ranks().size());
  const std::int64_t blocks =  // that a type which cuts columns has, at least
      rules.column_block == 0 ? 1
                              : (table.embedding_dim + rules.column_block - 1) / rules.column_block;
  switch (type) {
    case ShardingType::kTableWise:
      return true;
    case ShardingType::kColumnWise:
      return blocks <= rules.max_shards && (!rules.distinct_ranks || blocks <= most);
    case ShardingType::kTableColumnWise:
      return blocks <= rules.max_shards && (!rules.distinct_ranks || blocks <= most_of_a_host);
    case ShardingType::kRowWise:
    case ShardingType::kDataParallel:
      return ranks.all() && num_ranks <= most && num_ranks <= rules.max_shards &&
             rules.separate_groups.empty();
    case ShardingType::kTableRowWise:
    case ShardingType::kGridShard: {
      const int rows = ranks.fewest_of_a_whole_host();
      if (rows == 0 || (one_rank && rows > 1)) return false;
      if (type == ShardingType::kTableRowWise) return rows <= rules.max_shards;
      const std::int64_t hosts =
          one_host || one_rank ? 1 : static_cast<std::int64_t>(ranks.whole_hosts().size());
      return blocks * rows <= rules.max_shards && (!rules.distinct_ranks || blocks <= hosts);
    }
    case ShardingType::kRowWiseSubset:
      return most >= 2 && rules.max_shards >= 2;
  }
  return false;
}

}  // namespace

CompiledRules::CompiledRules(const PlanRequest& request, TypeSet default_types)
    : tables_(request.tables.size()),
      separate_groups_(request.constraints.separate),
      max_shards_per_rank_(OrAny(request.constraints.max_shards_per_rank)),
      max_tables_per_rank_(OrAny(request.constraints.max_tables_per_rank)),
      hosts_(request.topology.hosts()),
      host_of_rank_(request.topology.devices.size()) {
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    std::fill_n(host_of_rank_.begin() + hosts_[host].first, hosts_[host].count,
                static_cast<int>(host));
  }
  CollectDemands(request, default_types);
  CollectGroups(request.constraints);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableRules& of = tables_[t];
    for (const auto& word : kWords<ShardingType>) {
      if (!CanBe(word.value, request.tables[t], of)) of.types.Remove(word.value);
    }
  }
}

void CompiledRules::CollectDemands(const PlanRequest& request, TypeSet default_types) {
  const Constraints& constraints = request.constraints;
  const TypeSet unnamed =
      constraints.sharding_types.empty() ? default_types : TypeSet(constraints.sharding_types);
  const std::size_t num_ranks = host_of_rank_.size();
  const auto all_ranks = std::make_shared<const RankSet>(hosts_, std::vector(num_ranks, true));
  for (TableRules& of : tables_) {
    of.types = TypeSet::All();
    of.ranks = all_ranks;
    of.max_shards = OrAny(constraints.max_shards_per_table);
    of.min_column_width = constraints.min_column_width;
  }
  RankSets rank_sets(hosts_);
  std::vector<bool> has_types(tables_.size());
  for (const TableRule& rule : constraints.tables) {
    TypeSet of_kernels;
    for (const auto& word : kWords<ShardingType>) {
      const auto& kernels = rule.compute_kernels;
      if (kernels.empty() ||
          std::find(kernels.begin(), kernels.end(), KernelOf(word.value)) != kernels.end()) {
        of_kernels.Add(word.value);
      }
    }
    std::vector<bool> rule_ranks;
    if (NamesRanks(rule)) rule_ranks = RanksOf(rule, hosts_, num_ranks);
    for (const int table : rule.tables) {
      TableRules& of = tables_[static_cast<std::size_t>(table)];
      of.types = of.types & of_kernels;
      if (!rule.sharding_types.empty()) {
        of.types = of.types & TypeSet(rule.sharding_types);
        has_types[static_cast<std::size_t>(table)] = true;
      }
      if (!rule_ranks.empty()) {
        std::vector<bool> has = rule_ranks;
        if (of.ranks != all_ranks) Intersect(has, of.ranks->has());
        of.ranks = rank_sets.Of(std::move(has));
      }
      of.max_shards = std::min(of.max_shards, OrAny(rule.max_shards));
      of.min_column_width = std::max(of.min_column_width, rule.min_column_width);
      of.distinct_ranks = of.distinct_ranks || rule.distinct_ranks;
    }
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableRules& of = tables_[t];
    if (!has_types[t]) of.types = of.types & unnamed;
  }
  FindColumnBlocks(request);
}

void CompiledRules::FindColumnBlocks(const PlanRequest& request) {
  std::map<std::pair<std::string_view, std::int64_t>, std::int64_t> unpooled_width;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const Table& table = request.tables[t];
    if (table.kind != TableKind::kEmbedding) continue;
    std::int64_t& width = unpooled_width[{table.module, table.embedding_dim}];
    width = std::max(width, tables_[t].min_column_width);
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableRules& of = tables_[t];
    const Table& table = request.tables[t];
    const std::int64_t dim = table.embedding_dim;
    const bool unpooled = table.kind == TableKind::kEmbedding;
    if (unpooled || request.constraints.column_rule == ColumnRule::kTorchRec) {
      const std::int64_t least =
          unpooled ? unpooled_width.at({table.module, dim}) : of.min_column_width;
      of.column_block = TorchRecColumnWidth(dim, least == 0 ? kTorchRecMinPartition : least);
    }
    of.min_column_width = std::clamp<std::int64_t>(of.min_column_width, 1, dim);
  }
}

void CompiledRules::CollectGroups(const Constraints& constraints) {
  Merged by_rank(tables_.size());
  Merged by_host(tables_.size());
  for (const TableGroup& group : constraints.colocate) {
    (group.level == GroupLevel::kRank ? by_rank : by_host).Join(group.tables);
  }
  rank_groups_ = by_rank.Groups();
  // Who shares a rank with a table shares its host with that table's company.
  for (const std::vector<int>& group : rank_groups_) {
    if (std::any_of(group.begin(), group.end(), [&](int table) { return by_host.Has(table); })) {
      by_host.Join(group);
    }
  }
  host_groups_ = by_host.Groups();

  RankSets rank_sets(hosts_);
  for (std::size_t g = 0; g < rank_groups_.size(); ++g) {
    std::vector<bool> common(host_of_rank_.size(), true);
    for (const int table : rank_groups_[g]) Intersect(common, of(table).ranks->has());
    for (const int table : rank_groups_[g]) {
      tables_[static_cast<std::size_t>(table)].rank_group = static_cast<int>(g);
      tables_[static_cast<std::size_t>(table)].ranks = rank_sets.Of(common);
    }
  }
  for (std::size_t g = 0; g < host_groups_.size(); ++g) {
    std::vector<std::size_t> users(hosts_.size());  // how many of the tables may use each host
    for (const int table : host_groups_[g]) {
      for (const int host : of(table).ranks->hosts()) ++users[static_cast<std::size_t>(host)];
    }
    for (const int table : host_groups_[g]) {
      TableRules& rules = tables_[static_cast<std::size_t>(table)];
      std::vector<bool> has = rules.ranks->has();
      for (std::size_t rank = 0; rank < has.size(); ++rank) {
        const std::size_t host = static_cast<std::size_t>(host_of_rank_[rank]);
        if (users[host] != host_groups_[g].size()) has[rank] = false;
      }
      rules.host_group = static_cast<int>(g);
      rules.ranks = rank_sets.Of(std::move(has));
    }
  }
  for (std::size_t g = 0; g < separate_groups_.size(); ++g) {
    for (const int table : separate_groups_[g].tables) {
      tables_[static_cast<std::size_t>(table)].separate_groups.push_back(static_cast<int>(g));
    }
  }
}

}  // namespace neuroshard
