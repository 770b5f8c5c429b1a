#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "server/search/refine/moves/neighbourhood.h"
#include "server/search/refine/moves/table_placer.h"
#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Tables of the source that are looked at, the costliest there.
constexpr std::size_t kTables = 24;
// Hosts and ranks that blocks and groups may go to, the lowest.
constexpr std::size_t kHosts = 8;
constexpr std::size_t kGroupRanks = 64;

class TableMoves final : public Neighbourhood {
 public:
  explicit TableMoves(Workbench& bench) : Neighbourhood(bench), placer_(bench) {}

  void Collect(int source, double /*max_ms*/, MoveList& list) override {
    pricer_.CostliestTables(
        source, kTables, [](int) { return true; }, tables_);
    for (const int table : tables_) placer_.AddShards(table);
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

 private:
  void Relayout(int table, MoveList& list) {
    const std::span<const int> units = solution_.units_of_table(table);
    removed_.assign(units.begin(), units.end());
    for (const TableLayout& layout : placer_.LayoutsOf(table)) {
      context_.AddWork(Work::kRelayout, static_cast<std::size_t>(layout.blocks) *
                                            static_cast<std::size_t>(layout.holders));
      placer_.Without(removed_);
      if (placer_.Place(table, placer_.Stay(table, layout)))
        Propose(removed_, placer_.added(), list);
    }
  }

  void MoveHostBlocks(int host, MoveList& list) {
    placer_.Without({});
    const std::vector<int> targets = LowestHosts(rules_.hosts(), placer_.total_ms(), kHosts, host);
    const auto blocks = solution_.units_on_host(host);
    const auto at = [&](int id, int place) {
      return MovedTo(place, solution_.unit(id), solution_, shard_table_);
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
        Propose(removed_, std::span(&there, 1), list);
        for (const int back : solution_.units_on_host(target)) {
          if (solution_.unit(back).table == solution_.unit(id).table) continue;
          removed_ = {id, back};
          Propose(removed_, std::array{there, at(back, host)}, list);
        }
      }
    }
  }

  // Every table keeps its type and number of blocks.
  void MoveGroup(const std::vector<int>& group, MoveList& list) {
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
      placer_.Without(ids);
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
      Propose(ids, placer_.added(), list);
    };
    placer_.Without({});
    if (rules_.of(group.front()).host_group >= 0) {
      for (const int host : LowestHosts(rules_.hosts(), placer_.total_ms(), kHosts))
        try_at(host, -1);
      return;
    }
    std::vector<int> ranks = rules_.of(group.front()).ranks->ranks();
    SortByValue(ranks, placer_.total_ms());
    ranks.resize(std::min(ranks.size(), kGroupRanks));
    for (const int rank : ranks) try_at(-1, rank);
  }

  TablePlacer placer_;

  // Scratch of Collect, kept for its memory.
  std::vector<int> tables_;
  std::vector<int> removed_;
};

}  // namespace

std::unique_ptr<Neighbourhood> MakeTableMoves(Workbench& bench) {
  return std::make_unique<TableMoves>(bench);
}

}  // namespace neuroshard
