#include "server/evaluate/rules/compiled_rules.h"

#include <algorithm>
#include <climits>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/positions.h"
#include "common/domain/held_shards.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

// TorchRec's min_partition where a caller names none (sharding_plan.py).
constexpr std::int64_t kTorchRecMinPartition = 128;

// Load factors of caches that a search tries where no rule asks for one. A table's time falls
// fastest with the first rows, so they are close together there. TorchRec's planner refuses 1.
constexpr double kLoadFactors[] = {0.01, 0.02, 0.03,  0.045, 0.06, 0.08, 0.1, 0.125, 0.15,
                                   0.2,  0.25, 0.325, 0.4,   0.5,  0.65, 0.8, 0.95};

// Shares of dynamic tables on the device: those that TorchEasyRec's planner tries. No fit says what
// less costs.
constexpr double kDynamicShares[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1};

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
      if (!std::ranges::binary_search(rule.hosts, static_cast<int>(host))) {
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
class DisjointGroups {
 public:
  explicit DisjointGroups(std::size_t tables) : parent_(Positions<int>(tables)), grouped_(tables) {}

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

// Whether rows that are row_wise in the plan are cut so. What ranks of another topology had is not
// known.
bool IsCutSo(const TablePlan& plan, const Table& table, const RowCut& cut) {
  if (plan.sharding_type != ShardingType::kRowWise) return true;
  if (cut.proportion && plan.shards.size() != cut.weights->size()) return true;
  const std::vector<Block> blocks =
      RowWiseBlocks(table.num_embeddings, static_cast<int>(plan.shards.size()), cut);
  return std::equal(plan.shards.begin(), plan.shards.end(), blocks.begin(), blocks.end(),
                    [](const Shard& shard, const Block& block) {
                      return shard.row_offset == block.offset && shard.rows == block.size;
                    });
}

// Whether some layout of the type keeps the table's own demands; see the header.
bool CanBe(ShardingType type, const Table& table, const TableRules& rules, const RowCut& cut,
           bool distinct_ranks) {
  const RankSet& ranks = *rules.ranks;
  if (ranks.ranks().empty() || !IsTypeOf(table.kind, type)) return false;
  const bool one_rank = rules.rank_group >= 0;
  const bool one_host = rules.host_group >= 0;
  const int num_ranks = static_cast<int>(ranks.has().size());
  if (CutsRows(type) && !cut.plain()) {
    if (type != ShardingType::kRowWise || cut.contradictory) return false;
    if (cut.multiple > 0 && table.num_embeddings / cut.multiple < num_ranks) return false;
  }
  const std::int64_t blocks = rules.fewest_blocks(table.embedding_dim);
  const std::int64_t least = std::max(rules.column_block, rules.min_column_width);
  if (CutsColumns(type)
          ? least > rules.max_column_width || blocks * rules.min_column_width > table.embedding_dim
          : rules.max_column_width < table.embedding_dim) {
    return false;
  }
  // Ranks that the shards of a table can be spread over, at most.
  const int most_of_a_host = one_rank ? 1 : ranks.most_of_a_host();
  const int most = one_rank || one_host ? most_of_a_host : static_cast<int>(ranks.ranks().size());
  switch (type) {
    case ShardingType::kTableWise:
      return true;
    case ShardingType::kColumnWise:
      return blocks <= rules.max_shards && (!distinct_ranks || blocks <= most);
    case ShardingType::kTableColumnWise:
      return blocks <= rules.max_shards && (!distinct_ranks || blocks <= most_of_a_host);
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
      return blocks * rows <= rules.max_shards && (!distinct_ranks || blocks <= hosts);
    }
    case ShardingType::kRowWiseSubset:
      return most >= 2 && rules.max_shards >= 2;
  }
  return false;
}

}  // namespace

RankSet::RankSet(const std::vector<HostRanks>& hosts, std::vector<bool> has)
    : has_(std::move(has)) {
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    int count = 0;
    for (int rank = hosts[h].first; rank < hosts[h].first + hosts[h].count; ++rank) {
      if (!contains(rank)) continue;
      ranks_.push_back(rank);
      ++count;
    }
    if (count > 0) hosts_.push_back(static_cast<int>(h));
    if (count == hosts[h].count) {
      whole_hosts_.push_back(static_cast<int>(h));
      whole_host_sizes_.push_back(count);
    }
    most_of_a_host_ = std::max(most_of_a_host_, count);
  }
  SortUnique(whole_host_sizes_);
}

CompiledRules::CompiledRules(const PlanRequest& request, TypeSet default_types, MemoryTier slowest,
                             TypeSet within)
    : tables_(request.tables.size()),
      row_cuts_(request),
      separate_groups_(request.constraints.separate),
      max_shards_per_rank_(OrAny(request.constraints.max_shards_per_rank)),
      max_tables_per_rank_(OrAny(request.constraints.max_tables_per_rank)),
      hosts_(request.topology.hosts()),
      host_of_rank_(request.topology.devices.size()) {
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    std::fill_n(host_of_rank_.begin() + hosts_[host].first, hosts_[host].count,
                static_cast<int>(host));
  }
  FindResidencies(request, slowest);
  CollectDemands(request, default_types);
  CollectGroups(request.constraints);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TableRules& of = tables_[t];
    const bool always_apart =
        !of.residencies->empty() &&
        std::all_of(of.residencies->begin(), of.residencies->end(),
                    [&](int position) { return TraitsOf(residency(position).kernel).keeps_apart; });
    const bool distinct_ranks = of.distinct_ranks || always_apart;
    for (const auto& word : kWords<ShardingType>) {
      if (!CanBe(word.value, request.tables[t], of, row_cut(static_cast<int>(t)), distinct_ranks)) {
        of.types.Remove(word.value);
      }
    }
    if (const TypeSet some = of.types & within; !some.empty()) of.types = some;
    of.device_types = of.device_types & of.types;
  }
}

void CompiledRules::FindResidencies(const PlanRequest& request, MemoryTier slowest) {
  struct Demand {
    KernelSet kernels;
    bool counts_cache = true;  // of key_value; see below
    bool lists = false;        // whether any rule lists kernels
    double load_factor = 0;    // 0: any
    bool two_factors = false;
    double in_place = 0;  // of the previous plan's cache; 0: none
    ComputeKernel in_place_kernel = ComputeKernel::kFused;

    auto operator<=>(const Demand&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  const auto is_there = [&](MemoryTier tier) {
    if (tier == MemoryTier::kDevice) return true;
    const std::vector<std::int64_t>& of_hosts = request.topology.*SharedMemoryOf(tier).of_hosts;
    return tier <= slowest && std::ranges::count(of_hosts, 0) < std::ssize(of_hosts);
  };
  KernelSet possible, unasked;
  for (const KernelTraits& of : kKernelTraits) {
    if (!is_there(of.tier)) continue;
    possible.Add(of.kernel);
    if (of.only_where_listed) continue;
    unasked.Add(of.kernel);
    slowest_tier_ = std::max(slowest_tier_, of.tier);
  }
  const bool has_unasked = has_off_device();
  const KernelSet on_device = {ComputeKernel::kFused, ComputeKernel::kDense};
  std::vector<Demand> demands(tables_.size(), {.kernels = unasked});
  for (const TableRule& rule : request.constraints.tables) {
    const KernelSet listed = possible & KernelSet(rule.compute_kernels);
    for (const int table : rule.tables) {
      Demand& of = demands[static_cast<std::size_t>(table)];
      if (!rule.compute_kernels.empty()) {
        of.kernels = of.lists ? of.kernels & listed : listed;
        of.lists = true;
      }
      if (rule.cache_load_factor == 0) continue;
      of.two_factors =
          of.two_factors || (of.load_factor != 0 && of.load_factor != rule.cache_load_factor);
      of.load_factor = rule.cache_load_factor;
    }
  }
  if (possible != on_device && request.migration.has_value()) {
    const Plan& previous = request.migration->previous;
    const std::vector<int> table_of = TablesOf(previous, request.tables);
    for (std::size_t e = 0; e < table_of.size(); ++e) {
      if (table_of[e] < 0) continue;
      Demand& of = demands[static_cast<std::size_t>(table_of[e])];
      const TablePlan& in_place = previous.tables[e];
      if (of.load_factor == 0 && of.in_place == 0 && in_place.cache_load_factor > 0) {
        of.in_place = in_place.cache_load_factor;
        of.in_place_kernel = in_place.compute_kernel;
      }
      if (of.lists || !possible.contains(in_place.compute_kernel)) continue;
      of.kernels.Add(in_place.compute_kernel);
      // What grows is no other table: it stays so where nothing is said.
      if (IsDynamic(in_place.compute_kernel)) {
        of.kernels = {ComputeKernel::kDynamicHybrid, ComputeKernel::kDynamicCaching};
      }
    }
  }
  for (std::size_t t = 0; t < demands.size(); ++t) {
    Demand& of = demands[t];
    for (const KernelTraits& kernel : kKernelTraits) {
      if (of.two_factors && kernel.has_cache) of.kernels.Remove(kernel.kernel);
      if (of.kernels.contains(kernel.kernel)) slowest_tier_ = std::max(slowest_tier_, kernel.tier);
    }
    // Where the memory rule counts no cache on the device, none is to be had for nothing: its share
    // is TorchRec's own.
    of.counts_cache = !of.kernels.contains(ComputeKernel::kKeyValue) ||
                      request.memory.rule != MemoryRule::kTorchRec ||
                      request.tables[t].max_l1_cache_bytes.value_or(0) > 0;
  }
  residencies_ = {Residency{}};
  std::map<std::pair<ComputeKernel, double>, int> position_of;  // of a load factor
  const auto position = [&](ComputeKernel kernel, double load_factor) {
    const auto [at, is_new] =
        position_of.emplace(std::pair(kernel, load_factor), static_cast<int>(residencies_.size()));
    if (is_new) residencies_.push_back({kernel, load_factor});
    return at->second;
  };
  const auto any_has = [&](ComputeKernel kernel) {
    return std::ranges::any_of(demands,
                               [&](const Demand& of) { return of.kernels.contains(kernel); });
  };
  if (has_unasked) position(ComputeKernel::kFusedUvm, 0);
  int all_on_device = -1;  // position of the whole of a dynamic table
  if (any_has(ComputeKernel::kDynamicHybrid)) {
    all_on_device = position(ComputeKernel::kDynamicHybrid, 1);
  }
  if (any_has(ComputeKernel::kOffload)) position(ComputeKernel::kOffload, 0);
  std::map<Demand, std::shared_ptr<const std::vector<int>>> lists;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const Demand& of = demands[t];
    TableRules& rules = tables_[t];
    const auto has = [&](ComputeKernel kernel) { return of.kernels.contains(kernel); };
    for (const auto& word : kWords<ShardingType>) {
      if (has(word.value == ShardingType::kDataParallel ? ComputeKernel::kDense
                                                        : ComputeKernel::kFused)) {
        rules.device_types.Add(word.value);
      }
    }
    auto& list = lists[of];
    if (list == nullptr) {
      std::vector<int> found;
      const auto add = [&](ComputeKernel kernel) {
        if (!has(kernel)) return;
        if (!HasCache(kernel) || of.load_factor != 0) {
          found.push_back(position(kernel, HasCache(kernel) ? of.load_factor : 0));
          return;
        }
        std::set<double> factors(std::begin(kLoadFactors), std::end(kLoadFactors));
        if (kernel == ComputeKernel::kKeyValue && !of.counts_cache) {
          factors = {kDefaultCacheLoadFactor};
        }
        if (IsDynamic(kernel)) {
          factors = {std::begin(kDynamicShares), std::end(kDynamicShares)};
        }
        // With everything on the device a copy in host memory is for nothing.
        if (kernel == ComputeKernel::kDynamicCaching && has(ComputeKernel::kDynamicHybrid)) {
          factors.erase(1);
        }
        const bool is_in_place =
            of.in_place_kernel == kernel || (IsDynamic(of.in_place_kernel) && IsDynamic(kernel));
        if (is_in_place && of.in_place > 0 && of.in_place <= 1) factors.insert(of.in_place);
        for (const double factor : factors) found.push_back(position(kernel, factor));
      };
      for (auto memory = kSharedMemories.rbegin(); memory != kSharedMemories.rend(); ++memory) {
        for (const KernelTraits& traits : kKernelTraits) {
          if (traits.kernel == ComputeKernel::kFusedUvmCaching) continue;
          if (traits.tier == memory->tier) add(traits.kernel);
        }
      }
      // All on the device is the fastest.
      const auto whole = std::ranges::find(found, all_on_device);
      if (whole != found.end()) std::rotate(whole, whole + 1, found.end());
      add(ComputeKernel::kFusedUvmCaching);
      if (has(ComputeKernel::kFused) || has(ComputeKernel::kDense) ||
          (!has_unasked && found.empty())) {
        found.push_back(0);
      }
      list = std::make_shared<const std::vector<int>>(std::move(found));
    }
    rules.residencies = list;
  }
}

void CompiledRules::CollectDemands(const PlanRequest& request, TypeSet default_types) {
  const Constraints& constraints = request.constraints;
  const TypeSet unnamed =
      constraints.sharding_types.empty() ? default_types : TypeSet(constraints.sharding_types);
  const std::size_t num_ranks = host_of_rank_.size();
  const auto all_ranks = std::make_shared<const RankSet>(hosts_, std::vector(num_ranks, true));
  for (TableRules& of : tables_) {
    of.types = of.device_types;
    if (!of.residencies->empty() && of.residencies->front() != 0) {
      for (const auto& word : kWords<ShardingType>) {
        if (word.value != ShardingType::kDataParallel) of.types.Add(word.value);
      }
    }
    of.ranks = all_ranks;
    of.max_shards = OrAny(constraints.max_shards_per_table);
    of.min_column_width = constraints.min_column_width;
  }
  RankSets rank_sets(hosts_);
  std::vector<bool> has_types(tables_.size());
  for (const TableRule& rule : constraints.tables) {
    std::vector<bool> rule_ranks;
    if (NamesRanks(rule)) rule_ranks = RanksOf(rule, hosts_, num_ranks);
    for (const int table : rule.tables) {
      TableRules& of = tables_[static_cast<std::size_t>(table)];
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
  KeepOffDevice();
  FindColumnBlocks(request);
  KeepInPlace(request);
}

void CompiledRules::KeepOffDevice() {
  std::map<std::shared_ptr<const std::vector<int>>, std::shared_ptr<const std::vector<int>>> kept;
  for (TableRules& of : tables_) {
    if (of.residencies->size() < 2 || of.residencies->back() != 0) continue;
    if (!(of.device_types & of.types).empty()) continue;
    auto& list = kept[of.residencies];
    if (list == nullptr) {
      list = std::make_shared<const std::vector<int>>(of.residencies->begin(),
                                                      of.residencies->end() - 1);
    }
    of.residencies = list;
  }
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
    of.max_column_width = std::clamp<std::int64_t>(dim, 1, request.kernels().max_columns);
  }
}

void CompiledRules::KeepInPlace(const PlanRequest& request) {
  if (!request.migration.has_value() || request.migration->only_types.empty()) return;
  const TypeSet only_types(request.migration->only_types);
  const std::vector<const TablePlan*> in_place = TablesInPlace(request);
  RankSets rank_sets(hosts_);
  std::map<int, std::shared_ptr<const std::vector<int>>> lists;  // by their one residency
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (in_place[t] == nullptr) continue;
    const TablePlan& plan = *in_place[t];
    TableRules& of = tables_[t];
    const Residency residency = ResidencyOf(plan);
    const int position = PositionOf(residency);
    // A kernel that its type does not have there cannot stay.
    const bool is_kernel_of_type =
        residency.off_device() || plan.compute_kernel == KernelOf(plan.sharding_type);
    if (!is_kernel_of_type || residencies_[static_cast<std::size_t>(position)] != residency ||
        std::find(of.residencies->begin(), of.residencies->end(), position) ==
            of.residencies->end() ||
        !of.types.contains(plan.sharding_type) ||
        !IsCutSo(plan, request.tables[t], row_cut(static_cast<int>(t))) ||
        !Allows(static_cast<int>(t), position, plan.sharding_type)) {
      of.types = {};
      continue;
    }
    of.types = {plan.sharding_type};
    if (residency.off_device()) of.device_types = {};
    auto& list = lists[position];
    if (list == nullptr) list = std::make_shared<const std::vector<int>>(1, position);
    of.residencies = list;
    if (only_types.contains(plan.sharding_type)) continue;
    const auto is_allowed = [&](const Shard& shard) {
      return shard.rank >= 0 && shard.rank < num_ranks() && of.ranks->contains(shard.rank);
    };
    if (!std::ranges::all_of(plan.shards, is_allowed)) {
      of.types = {};
      continue;
    }
    std::vector<bool> has(host_of_rank_.size());
    for (const Shard& shard : plan.shards) has[static_cast<std::size_t>(shard.rank)] = true;
    of.ranks = rank_sets.Of(std::move(has));
    of.kept = std::make_shared<const TablePlan>(plan);
  }
}

void CompiledRules::CollectGroups(const Constraints& constraints) {
  DisjointGroups by_rank(tables_.size());
  DisjointGroups by_host(tables_.size());
  for (const TableGroup& group : constraints.colocate) {
    (group.level == GroupLevel::kRank ? by_rank : by_host).Join(group.tables);
  }
  rank_groups_ = by_rank.Groups();
  // Who shares a rank with a table shares its host with that table's company.
  for (const std::vector<int>& group : rank_groups_) {
    if (std::ranges::any_of(group, [&](int table) { return by_host.Has(table); })) {
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
  for (const std::vector<int>& group : rank_groups_) AddClaims(group, GroupLevel::kRank, false);
  for (const std::vector<int>& group : host_groups_) AddClaims(group, GroupLevel::kHost, false);
  for (const TableGroup& group : separate_groups_) AddClaims(group.tables, group.level, true);
}

void CompiledRules::AddClaims(const std::vector<int>& tables, GroupLevel level, bool is_separate) {
  for (const int table : tables) {
    tables_[static_cast<std::size_t>(table)].claims.push_back({level, is_separate, num_claims_});
  }
  const std::size_t units = level == GroupLevel::kRank ? host_of_rank_.size() : hosts_.size();
  num_claims_ += is_separate ? static_cast<int>(units) : 1;
}

std::vector<SharedMemory> CompiledRules::shared_memories() const {
  std::vector<SharedMemory> memories;
  for (const SharedMemory& of : kSharedMemories) {
    const bool any =
        std::ranges::find(residencies_, of.tier, &Residency::tier) != residencies_.end();
    if (of.tier <= slowest_tier_ && (any || !IsOnlyWhereListed(of.tier))) memories.push_back(of);
  }
  return memories;
}

OffDevice CompiledRules::LeastOnDevice(int table) const {
  const std::vector<int>& of_table = *of(table).residencies;
  OffDevice least;
  if (of_table.empty() || of_table.front() == 0) return least;
  if (slowest_tier_ <= kSharedMemories.front().tier) {
    least.Add(of_table.front());
    return least;
  }
  for (const SharedMemory& memory : kSharedMemories) {
    const auto first = std::ranges::find_if(
        of_table, [&](int position) { return residency(position).tier() == memory.tier; });
    if (first != of_table.end()) least.Add(*first);
  }
  return least;
}

std::vector<int> CompiledRules::PlacesOffDevice(int table) const {
  const OffDevice least = LeastOnDevice(table);
  std::vector<int> places(least.begin(), least.end());
  const auto is_there = [&](ComputeKernel kernel) {
    return std::ranges::any_of(places, [&](int at) { return residency(at).kernel == kernel; });
  };
  // A kernel without copies of rows in a cache, which takes no more of any memory.
  const auto without_copies = [](ComputeKernel kernel) {
    if (kernel == ComputeKernel::kFusedUvmCaching) return ComputeKernel::kFusedUvm;
    return kernel == ComputeKernel::kDynamicCaching ? ComputeKernel::kDynamicHybrid : kernel;
  };
  for (const int position : *of(table).residencies) {
    if (!residency(position).off_device() || std::ranges::find(places, position) != places.end()) {
      continue;
    }
    const ComputeKernel kernel = residency(position).kernel;
    const bool is_first = !is_there(kernel) && !is_there(without_copies(kernel));
    if (is_first || kernel == ComputeKernel::kDynamicHybrid) places.push_back(position);
  }
  return places;
}

int CompiledRules::PositionOf(const Residency& residency) const {
  const auto at = std::ranges::find(residencies_, residency);
  return at == residencies_.end() ? 0 : static_cast<int>(at - residencies_.begin());
}

}  // namespace neuroshard
