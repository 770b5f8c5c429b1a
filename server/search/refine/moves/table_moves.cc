#include "server/search/refine/moves/table_moves.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Tables of the source that are looked at, the costliest there.
constexpr std::size_t kTables = 24;
// Hosts and ranks that blocks and groups may go to, the lowest.
constexpr std::size_t kHosts = 8;
constexpr std::size_t kGroupRanks = 64;

}  // namespace

TableMoves::TableMoves(MoveBench& bench)
    : MoveTools(bench), placer_(bench), layouts_of_(context_.request().tables.size()) {}

const std::vector<TableLayout>& TableMoves::LayoutsOf(int table) {
  std::vector<TableLayout>& layouts = layouts_of_[static_cast<std::size_t>(table)];
  if (layouts.empty()) layouts = layouts_.Of(table);
  return layouts;
}

TableLayout TableMoves::Stay(int table, TableLayout layout) const {
  if (!rules_.has_off_device() || layout.type == ShardingType::kDataParallel) return layout;
  layout.residency = solution_.residency_of(table);
  // What was data_parallel and may not be fused.
  if (!rules_.Allows(table, layout.residency, layout.type)) {
    const OffDevice least = rules_.LeastOnDevice(table);
    layout.residency = least.empty() ? rules_.of(table).residencies->front() : least[0];
  }
  return layout;
}

void TableMoves::Collect(int source, MoveList& list) {
  pricer_.CostliestTables(
      source, kTables, [](int) { return true; }, tables_);
  for (const int table : tables_) AddShards(table);
  shard_table_.PredictNew();
  placer_.Reset();
  for (const int table : tables_) {
    if (context_.ShouldStop()) return;
    const TableRules& rules = rules_.of(table);
    if (rules.rank_group >= 0 || rules.host_group >= 0) {
      const auto& groups = rules.host_group >= 0 ? rules_.host_groups() : rules_.rank_groups();
      const std::vector<int>& group = groups[static_cast<std::size_t>(
          rules.host_group >= 0 ? rules.host_group : rules.rank_group)];
      MoveGroup(group, list);
    }
    Relayout(table, list);
  }
  MoveHostBlocks(solution_.host_of(source), list);
}

void TableMoves::AddShards(int table, const TableLayout& layout) {
  layouts_.Widths(table, layout.blocks, widths_);
  for (const std::int64_t cols : widths_) layouts_.Shards(shard_table_, table, layout, cols);
}

void TableMoves::AddShards(int table) {
  for (const TableLayout& one : LayoutsOf(table)) {
    AddShards(table, Stay(table, one));
  }
}

void TableMoves::Relayout(int table, MoveList& list) {
  const std::span<const int> units = solution_.units_of_table(table);
  removed_.assign(units.begin(), units.end());
  for (const TableLayout& layout : LayoutsOf(table)) {
    context_.AddWork(Work::kRelayout, static_cast<std::size_t>(layout.blocks) *
                                          static_cast<std::size_t>(layout.holders));
    placer_.Without(removed_);
    if (placer_.Place(table, Stay(table, layout))) Estimate(placer_.added(), list);
  }
}

bool TableMoves::RandomRelayout(Random& random) {
  const int table = static_cast<int>(random.Below(context_.request().tables.size()));
  if (solution_.fixed(table) != nullptr) return false;
  const std::vector<TableLayout>& layouts = LayoutsOf(table);
  TableLayout layout = Stay(table, layouts[random.Below(layouts.size())]);
  AddShards(table);
  if (rules_.has_off_device() && random.Below(2) == 0) {
    const std::vector<int>& residencies = *rules_.of(table).residencies;
    const int residency = residencies[random.Below(residencies.size())];
    if (rules_.Allows(table, residency, layout.type)) layout.residency = residency;
    AddShards(table, layout);
  }
  shard_table_.PredictNew();
  placer_.Reset();
  const std::span<const int> units = solution_.units_of_table(table);
  removed_.assign(units.begin(), units.end());
  placer_.Without(removed_);
  if (!placer_.Place(table, layout)) return false;
  if (!solution_.Allows(removed_, placer_.added())) return false;
  for (const int id : removed_) solution_.Remove(id);
  for (const Unit& unit : placer_.added()) solution_.Add(unit);
  return true;
}

void TableMoves::Estimate(std::span<const Unit> added, MoveList& list) {
  const double estimate_ms = pricer_.Estimate(removed_, added);
  if (list.Wants(estimate_ms)) list.Add(estimate_ms, removed_, added);
}

void TableMoves::MoveHostBlocks(int host, MoveList& list) {
  placer_.Without({});
  const std::vector<int> targets = placer_.LowestHosts(kHosts, host);
  const auto blocks = solution_.units_on_host(host);
  const auto at = [&](int id, int place) {
    return OnHost(solution_.unit(id), place, solution_, shard_table_);
  };
  for (const int target : targets) {  // hosts may differ in size
    for (const int id : blocks) at(id, target);
    for (const int id : solution_.units_on_host(target)) at(id, host);
  }
  shard_table_.PredictNew();
  for (const int id : blocks) {
    for (const int target : targets) {
      removed_ = {id};
      const Unit there = at(id, target);
      Estimate(std::span(&there, 1), list);
      for (const int back : solution_.units_on_host(target)) {
        if (solution_.unit(back).table == solution_.unit(id).table) continue;
        removed_ = {id, back};
        Estimate(std::array{there, at(back, host)}, list);
      }
    }
  }
}

// Every table keeps its type and number of blocks.
void TableMoves::MoveGroup(const std::vector<int>& group, MoveList& list) {
  std::vector<int> ids;
  for (const int table : group) {
    const auto units = solution_.units_of_table(table);
    ids.insert(ids.end(), units.begin(), units.end());
  }
  const auto layout_of = [&](int table) {
    const auto units = solution_.units_of_table(table);
    const Unit& unit = solution_.unit(units.front());
    return TableLayout{unit.type, static_cast<int>(units.size()),
                       unit.spread() == Spread::kSubset ? unit.shards.count : 1, unit.residency};
  };
  const auto try_at = [&](int host, int rank) {
    removed_ = ids;
    placer_.Without(removed_);
    std::vector<std::pair<int, int>> rank_of_group;  // rank groups within the host's group
    for (const int table : group) {
      int on = rank;
      const int together = rules_.of(table).rank_group;
      if (rank < 0 && together >= 0) {
        const auto known = std::ranges::find_if(
            rank_of_group, [&](const auto& entry) { return entry.first == together; });
        if (known == rank_of_group.end()) {
          const HostRanks& within = solution_.host(host);
          const auto first = placer_.total_ms().begin() + within.first;
          on = within.first +
               static_cast<int>(std::min_element(first, first + within.count) - first);
          rank_of_group.emplace_back(together, on);
        } else {
          on = known->second;
        }
      }
      if (!placer_.Place(table, layout_of(table), host, on)) return;
    }
    Estimate(placer_.added(), list);
  };
  placer_.Without({});
  if (rules_.of(group.front()).host_group >= 0) {
    for (const int host : placer_.LowestHosts(kHosts)) try_at(host, -1);
    return;
  }
  std::vector<int> ranks = rules_.of(group.front()).ranks->ranks();
  SortByValue(ranks, placer_.total_ms());
  ranks.resize(std::min(ranks.size(), kGroupRanks));
  for (const int rank : ranks) try_at(-1, rank);
}

}  // namespace neuroshard
