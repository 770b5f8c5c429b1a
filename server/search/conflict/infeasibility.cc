#include "server/search/conflict/infeasibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/positions.h"
#include "common/domain/memory_pools.h"
#include "common/domain/memory_use.h"
#include "common/domain/table_names.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/conflict/proof_parts.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

// Shards counted by LargeShards: larger than a fifth of the roomiest rank.
constexpr int kMaxPartsOfARank = 5;

// The arguments one after the other, cheapest first.
class Prover {
 public:
  explicit Prover(const PlanRequest& request)
      : request_(request),
        names_(request.tables),
        rules_(request, TypeSet::All()),
        available_(AvailableBytes(request)) {}

  std::optional<Infeasibility> Run(const StopSignal& stop) {
    using Check = std::optional<Infeasibility> (Prover::*)();
    for (const Check check :
         {&Prover::Types, &Prover::TogetherAndApart, &Prover::Pieces, &Prover::Groups,
          &Prover::Separation, &Prover::TableLimit, &Prover::ShardLimit, &Prover::Memory,
          &Prover::AllMemories, &Prover::LargeShards, &Prover::Budget, &Prover::EveryPlan}) {
      if (stop.ShouldStop()) return std::nullopt;
      if (std::optional<Infeasibility> found = (this->*check)()) return found;
    }
    return std::nullopt;
  }

 private:
  int num_tables() const { return static_cast<int>(request_.tables.size()); }
  const std::string& Name(int table) const { return names_.ReferenceTo(table); }
  const LeastDemand& Least(int table) const { return At(least_, table); }
  std::vector<TypeSet> TypesLeft() const { return Mapped(least_, &LeastDemand::types); }
  bool OnEachRank(int table) const { return !Least(table).on_each_rank.empty(); }

  // Whether a rule lists kernels for it, and none of device memory.
  bool MustLeaveDevice(int table) const {
    const auto off_device = [](ComputeKernel kernel) {
      return TierOf(kernel) != MemoryTier::kDevice;
    };
    const auto& rules = request_.constraints.tables;
    return std::ranges::any_of(rules, [&](const TableRule& rule) {
      const auto& kernels = rule.compute_kernels;
      return std::ranges::find(rule.tables, table) != rule.tables.end() && !kernels.empty() &&
             std::ranges::all_of(kernels, off_device);
    });
  }

  std::string WhyNoType(int table) const {
    const TableRules& rules = rules_.of(table);
    const Table& of = At(request_.tables, table);
    if (rules.ranks->ranks().empty()) return fmt::format("'{}' may be on no rank", Name(table));
    if (rules.residencies->empty()) {
      return fmt::format("'{}' may be in no memory: no kernel and load factor is left",
                         Name(table));
    }
    if (!rules_.has_off_device() && MustLeaveDevice(table)) {
      return fmt::format(
          "'{}' may be in no memory: its kernels are for host memory or SSDs, and "
          "hosts have none for it",
          Name(table));
    }
    std::string why = fmt::format("'{}' has no sharding type left", Name(table));
    if (of.kind == TableKind::kEmbedding) {
      why += ": kind embedding has table_wise, column_wise and row_wise alone";
    }
    const std::int64_t multiple = rules_.row_cut(table).multiple;
    if (multiple > 0 && of.num_embeddings / multiple < rules_.num_ranks()) {
      why += fmt::format(": row_wise cannot cut {} buckets of {} rows over {} ranks",
                         of.num_embeddings / multiple, multiple, rules_.num_ranks());
    }
    return why;
  }

  std::optional<Infeasibility> Types() {
    for (int t = 0; t < num_tables(); ++t) {
      if (!rules_.of(t).types.empty()) continue;
      return Infeasibility{WhyNoType(t), Company(t)};
    }
    return std::nullopt;
  }

  std::optional<Infeasibility> TogetherAndApart() {
    for (const TableGroup& group : rules_.separate_groups()) {
      // Who shares a rank shares a host; who shares a host may have a rank of its own. A rank group
      // that touches a host group is part of it.
      std::map<std::pair<bool, int>, int> first_of;  // (at host level, co-located group), table
      for (const int table : group.tables) {
        const TableRules& of = rules_.of(table);
        const bool by_host = group.level == GroupLevel::kHost && of.host_group >= 0;
        const int shared = by_host ? of.host_group : of.rank_group;
        if (shared < 0) continue;
        const auto [first, is_first] = first_of.emplace(std::pair(by_host, shared), table);
        if (is_first) continue;
        const auto& groups = by_host ? rules_.host_groups() : rules_.rank_groups();
        return Infeasibility{fmt::format("'{}' and '{}' are to share a {} and not to",
                                         Name(first->second), Name(table), ToText(group.level)),
                             At(groups, shared)};
      }
    }
    return std::nullopt;
  }

  std::optional<Infeasibility> Pieces() {
    least_ = LeastDemandsOf(request_, rules_, available_);
    for (int t = 0; t < num_tables(); ++t) {
      if (!Least(t).types.empty()) continue;
      return Infeasibility{
          fmt::format("'{}' has no layout of which each shard fits into a rank that it may use{}",
                      Name(t), LeastShardOf(t)),
          Company(t)};
    }
    return std::nullopt;
  }

  // By how much the table's smallest cut is too large; empty where it is not the size that matters.
  std::string LeastShardOf(int table) const {
    const std::vector<std::int64_t> endless(available_.size(), kMaxFlow);
    const LeastDemand least = At(LeastDemandsOf(request_, rules_, endless), table);
    std::int64_t roomiest = 0;
    for (const int rank : rules_.of(table).ranks->ranks()) {
      roomiest = std::max(roomiest, At(available_, rank));
    }
    if (least.types.empty() || least.piece <= roomiest) return "";
    return fmt::format(": cut as far as it may be, a shard takes {}, and the roomiest has {}",
                       FormatBytes(least.piece), FormatBytes(roomiest));
  }

  // The tables whose demands bear on where this one may be.
  std::vector<int> Company(int table) const {
    const TableRules& of = rules_.of(table);
    if (of.host_group >= 0) return At(rules_.host_groups(), of.host_group);
    if (of.rank_group >= 0) return At(rules_.rank_groups(), of.rank_group);
    return {table};
  }
  std::vector<int> WithCompany(const std::vector<int>& tables) const {
    std::vector<int> all;
    for (const int table : tables) {
      const std::vector<int> company = Company(table);
      all.insert(all.end(), company.begin(), company.end());
    }
    SortUnique(all);
    return all;
  }

  // Co-located tables take their sums from one rank, or from the ranks of one host.
  std::optional<Infeasibility> Groups() {
    for (const std::vector<int>& group : rules_.rank_groups()) {
      std::vector<HostRanks> places;
      for (const int rank : rules_.of(group.front()).ranks->ranks()) places.push_back({rank, 1});
      if (!FitsSomewhere(group, places)) return TooMuch(group, "rank");
    }
    for (const std::vector<int>& group : rules_.host_groups()) {
      const std::vector<HostRanks> places =
          Mapped(rules_.of(group.front()).ranks->hosts(),
                 [&](const int host) { return At(rules_.hosts(), host); });
      if (!FitsSomewhere(group, places)) return TooMuch(group, "host");
    }
    return std::nullopt;
  }

  static Infeasibility TooMuch(const std::vector<int>& group, const char* place) {
    return {fmt::format("{} co-located tables are more than any {} they may share can take",
                        group.size(), place),
            group};
  }

  bool FitsSomewhere(const std::vector<int>& group, const std::vector<HostRanks>& places) const {
    std::int64_t bytes = 0;
    std::int64_t shards = 0;
    std::int64_t on_ranks = 0;
    for (const int table : group) {
      bytes = CappedSum(bytes, Least(table).bytes);
      shards += Least(table).shards;
      on_ranks += Least(table).ranks;
    }
    return std::ranges::any_of(places, [&](const HostRanks& place) {
      std::int64_t room = 0;
      for (int rank = place.first; rank < place.first + place.count; ++rank) {
        room = CappedSum(room, std::max<std::int64_t>(0, At(available_, rank)));
      }
      const std::int64_t count = place.count;
      return bytes <= room && shards <= count * rules_.max_shards_per_rank() &&
             on_ranks <= count * rules_.max_tables_per_rank();
    });
  }

  // Each table of a separate group has its ranks, or hosts, to itself.
  std::optional<Infeasibility> Separation() {
    for (const TableGroup& group : rules_.separate_groups()) {
      const bool ranks = group.level == GroupLevel::kRank;
      const std::vector<std::int64_t> room(
          ranks ? static_cast<std::size_t>(rules_.num_ranks()) : rules_.hosts().size(), 1);
      if (group.tables.size() * room.size() > kMaxFlowEdges) continue;
      std::vector<Supplier> suppliers;
      for (const int table : group.tables) {
        const RankSet& of = *rules_.of(table).ranks;
        suppliers.push_back({ranks ? Least(table).ranks : 1, ranks ? &of.ranks() : &of.hosts()});
      }
      const auto stuck = FindOverfull(suppliers, room, 1);
      if (!stuck.has_value()) continue;
      std::vector<int> tables;
      for (const std::size_t i : *stuck) tables.push_back(group.tables[i]);
      return Infeasibility{
          fmt::format("{} tables that are to be on {}s of their own have too few of them",
                      tables.size(), ToText(group.level)),
          WithCompany(tables)};
    }
    return std::nullopt;
  }

  std::optional<Infeasibility> TableLimit() {
    return Limit(rules_.max_tables_per_rank(), &LeastDemand::ranks, "tables");
  }
  std::optional<Infeasibility> ShardLimit() {
    return Limit(rules_.max_shards_per_rank(), &LeastDemand::shards, "shards");
  }

  std::optional<Infeasibility> Limit(int most, int LeastDemand::*count, const char* what) {
    if (most == INT_MAX) return std::nullopt;
    std::int64_t taken = 0;
    for (int t = 0; t < num_tables(); ++t) taken += OnEachRank(t) ? 1 : 0;
    const std::size_t ranks = available_.size();
    const auto found = FindOverfullRanks(rules_, least_, std::vector<std::int64_t>(ranks, most),
                                         std::vector<std::int64_t>(ranks, taken), count);
    if (!found.has_value()) return std::nullopt;
    return Infeasibility{fmt::format("there are {} {} at the least for ranks that may have {}",
                                     found->wanted, what, found->room),
                         WithCompany(found->tables)};
  }

  std::optional<Infeasibility> Memory() {
    std::vector<std::int64_t> taken(available_.size());
    for (int t = 0; t < num_tables(); ++t) {
      for (std::size_t r = 0; r < Least(t).on_each_rank.size(); ++r) {
        taken[r] = CappedSum(taken[r], Least(t).on_each_rank[r]);
      }
    }
    const auto found = FindOverfullRanks(rules_, least_, available_, taken, &LeastDemand::bytes);
    if (!found.has_value()) return std::nullopt;
    return Infeasibility{
        fmt::format("tables take {} at the least on ranks that have {} for them: {} short. {}",
                    FormatBytes(found->wanted), FormatBytes(found->room),
                    FormatBytes(found->wanted - found->room), LargestOf(found->tables)),
        WithCompany(found->tables)};
  }

  // "The largest: 'a' (2.00 GiB), 'b' (1.00 GiB) and 7 more".
  std::string LargestOf(std::vector<int> tables) {
    constexpr std::size_t kMaxListed = 3;
    std::ranges::stable_sort(tables, [&](int a, int b) { return Least(a).bytes > Least(b).bytes; });
    std::string list = "The largest: ";
    for (std::size_t i = 0; i < tables.size() && i < kMaxListed; ++i) {
      list += fmt::format("{}'{}' ({})", i > 0 ? ", " : "", names_.ReferenceTo(tables[i]),
                          FormatBytes(Least(tables[i]).bytes));
    }
    if (tables.size() > kMaxListed) list += fmt::format(" and {} more", tables.size() - kMaxListed);
    return list;
  }

  // Weights and optimizer state of every row are in some memory. So tables that may only be in some
  // neighbouring ones have to fit into these together, for each such range with a shared memory.
  std::optional<Infeasibility> AllMemories() {
    if (!rules_.has_off_device()) return std::nullopt;
    std::vector<MemoryRoom> rooms = {{MemoryTier::kDevice, "in device memory", "device memory", 0}};
    for (const std::int64_t bytes : available_) {
      rooms[0].bytes = CappedSum(rooms[0].bytes, std::max<std::int64_t>(0, bytes));
    }
    const TierBytes shared = SharedBytes(request_.topology);
    for (const SharedMemory& of : rules_.shared_memories()) {
      rooms.push_back({of.tier, of.place, of.amount, shared[of.tier]});
    }
    for (std::size_t first = 0; first < rooms.size(); ++first) {
      for (std::size_t last = std::max<std::size_t>(first, 1); last < rooms.size(); ++last) {
        if (auto found = InMemories(rooms, first, last)) return found;
      }
    }
    return std::nullopt;
  }

  struct MemoryRoom {
    MemoryTier tier;
    std::string_view place, name;  // "in host memory", "host memory"
    std::int64_t bytes;
  };

  // Whether tables that may only be in rooms[first] to rooms[last], inclusive, are too large for them.
  std::optional<Infeasibility> InMemories(const std::vector<MemoryRoom>& rooms, std::size_t first,
                                          std::size_t last) {
    std::vector<int> tables;
    std::int64_t wanted = 0, room = 0;
    for (int t = 0; t < num_tables(); ++t) {
      if (FastestOf(t) < rooms[first].tier || SlowestOf(t) > rooms[last].tier) continue;
      tables.push_back(t);
      wanted = CappedSum(wanted, LeastOfRows(t, rooms[first].tier));
    }
    for (std::size_t i = first; i <= last; ++i) room = CappedSum(room, rooms[i].bytes);
    if (wanted <= room) return std::nullopt;
    std::string amounts, others;
    for (std::size_t i = 0; i < rooms.size(); ++i) {
      if (i < first || i > last) {
        others += (others.empty() ? " that may not be " : " or ") + std::string(rooms[i].place);
        continue;
      }
      if (i > first) amounts += i == last ? " and " : ", ";
      amounts += fmt::format("{} of {}", FormatBytes(rooms[i].bytes), rooms[i].name);
    }
    return Infeasibility{
        fmt::format("tables{} take {} at the least, and there {} {} for them", others,
                    FormatBytes(wanted), first == last ? "is" : "are", amounts),
        std::move(tables)};
  }

  // The least bytes of a table's rows, and of copies in caches, in all memories from `first` on.
  std::int64_t LeastOfRows(int t, MemoryTier first) const {
    const auto in = [&](const Residency& residency, ShardingType type) {
      const Table& table = At(request_.tables, t);
      const MemoryUse use = ShardMemory(request_, table, LayoutIn(residency, type, 1),
                                        table.num_embeddings, table.embedding_dim);
      std::int64_t bytes = 0;
      for (const auto& [tier, name] : kWords<MemoryTier>) {
        if (tier >= first) bytes = CappedSum(bytes, use.weights[tier] + use.optimizer[tier]);
      }
      return bytes;
    };
    const std::vector<int>& residencies = *rules_.of(t).residencies;
    std::int64_t least = kMaxFlow;
    if (residencies.empty() || residencies.back() == 0) {
      // Stashed weights have a copy in host memory; those of data_parallel are never stashed.
      least = std::min(in({}, ShardingType::kTableWise), in({}, ShardingType::kDataParallel));
    }
    for (const int position : rules_.PlacesOffDevice(t)) {
      least = std::min(least, in(rules_.residency(position), ShardingType::kTableWise));
    }
    return least;
  }

  // Values of dynamic tables may all be on the device.
  MemoryTier FastestOf(int table) const {
    const std::vector<int>& residencies = *rules_.of(table).residencies;
    if (residencies.empty()) return MemoryTier::kDevice;
    return std::ranges::min(Mapped(residencies, [&](int position) {
      const Residency& residency = rules_.residency(position);
      return IsDynamic(residency.kernel) ? MemoryTier::kDevice : residency.tier();
    }));
  }

  MemoryTier SlowestOf(int table) const {
    const OffDevice tiers = rules_.LeastOnDevice(table);
    return tiers.empty() ? MemoryTier::kDevice : rules_.residency(tiers[tiers.size() - 1]).tier();
  }

  // No rank takes three shards that are larger than a third of the roomiest rank, say.
  std::optional<Infeasibility> LargeShards() {
    const std::int64_t roomiest = std::max<std::int64_t>(0, *std::ranges::max_element(available_));
    for (int parts = 2; parts <= kMaxPartsOfARank; ++parts) {
      std::int64_t size = kMaxFlow;  // of the smallest of these shards
      for (const LeastDemand& least : least_) {
        if (least.piece > roomiest / parts) size = std::min(size, least.piece);
      }
      std::vector<std::int64_t> room;
      for (const std::int64_t available : available_) room.push_back(available / size);
      const auto found = FindOverfullRanks(
          rules_, least_, std::move(room), std::vector<std::int64_t>(available_.size()),
          [&](const LeastDemand& least) { return least.piece >= size ? 1 : 0; });
      if (!found.has_value()) continue;
      return Infeasibility{
          fmt::format("{} tables have a shard of {} or more each, of which their ranks take {}",
                      found->wanted, FormatBytes(size), found->room),
          WithCompany(found->tables)};
    }
    return std::nullopt;
  }

  std::optional<Infeasibility> Budget() {
    if (!request_.migration.has_value() || !request_.migration->budget_bytes.has_value()) {
      return std::nullopt;
    }
    const LeastMoves moves = LeastMovesOf(request_, rules_, TypesLeft());
    if (moves.bytes <= *request_.migration->budget_bytes) return std::nullopt;
    return Infeasibility{fmt::format("{} bytes move at the least", moves.bytes),
                         WithCompany(moves.tables)};
  }

  std::optional<Infeasibility> EveryPlan() {
    if (!TryEveryPlan(request_, rules_, TypesLeft()).all_tried) return std::nullopt;
    return Infeasibility{"every plan was tried, and none keeps them all",
                         Positions<int>(request_.tables.size())};
  }

  const PlanRequest& request_;
  const TableNames names_;
  const CompiledRules rules_;
  const std::vector<std::int64_t> available_;
  std::vector<LeastDemand> least_;  // by table, from Pieces on
};

}  // namespace

std::optional<Infeasibility> ProveInfeasible(const PlanRequest& request, const StopSignal& stop) {
  return Prover(request).Run(stop);
}

}  // namespace neuroshard
