#include "server/search/refine/table_neighbours.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

namespace neuroshard {
namespace {

// Tables of the source that are looked at, the costliest there.
constexpr std::size_t kTables = 24;
// Hosts and ranks that blocks and groups may go to, the lowest.
constexpr std::size_t kHosts = 8;
constexpr std::size_t kGroupRanks = 64;

}  // namespace

TableNeighbours::TableNeighbours(SearchContext& context, const CompiledRules& rules,
                                 const TableLayouts& layouts, ShardBook& book)
    : context_(context),
      rules_(rules),
      layouts_(layouts),
      book_(book),
      rough_(book),
      layouts_of_(context.request().tables.size()) {}

const std::vector<TableLayout>& TableNeighbours::LayoutsOf(int table) {
  std::vector<TableLayout>& layouts = layouts_of_[static_cast<std::size_t>(table)];
  if (layouts.empty()) layouts = layouts_.Of(table);
  return layouts;
}

void TableNeighbours::Collect(Solution& solution, const ExchangePricer& pricer, int source,
                              ExchangeList& list) {
  ChooseTables(solution, pricer, source);
  for (const int table : tables_) Intern(table);
  book_.PredictNew();
  SetStandings(pricer);
  for (const int table : tables_) {
    if (context_.ShouldStop()) return;
    const TableRules& rules = rules_.of(table);
    if (rules.rank_group >= 0 || rules.host_group >= 0) {
      const auto& groups = rules.host_group >= 0 ? rules_.host_groups() : rules_.rank_groups();
      const std::vector<int>& group = groups[static_cast<std::size_t>(
          rules.host_group >= 0 ? rules.host_group : rules.rank_group)];
      MoveGroup(solution, pricer, group, list);
    }
    Relayout(solution, pricer, table, list);
  }
  MoveHostBlocks(solution, pricer, solution.host_of(source), list);
}

// Adds the shards of all its layouts to the book.
void TableNeighbours::Intern(int table) {
  for (const TableLayout& layout : LayoutsOf(table)) {
    layouts_.Widths(table, layout.blocks, widths_);
    for (const std::int64_t cols : widths_) {
      switch (SpreadOf(layout.type)) {
        case Spread::kRank:
          book_.Shards(table, layout.type, cols, 1);
          break;
        case Spread::kHost:
          for (const HostRanks& host : rules_.hosts()) {
            book_.Shards(table, layout.type, cols, host.count);
          }
          break;
        case Spread::kRows:
        case Spread::kCopies:
          book_.Shards(table, layout.type, cols, rules_.num_ranks());
          break;
        case Spread::kSubset:
          book_.Shards(table, layout.type, cols, layout.holders);
          break;
      }
    }
  }
}

void TableNeighbours::ChooseTables(const Solution& solution, const ExchangePricer& pricer,
                                   int source) {
  by_share_.clear();
  const auto consider = [&](int id) {
    const Unit& unit = solution.unit(id);
    for (int i = 0; i < unit.shards.count; ++i) {
      if (solution.RankOf(unit, i) != source) continue;
      by_share_.emplace_back(-rough_.ShareOf(solution, pricer, source, unit.shards.at(i)),
                             unit.table);
    }
  };
  for (const int id : solution.units_on_rank(source)) consider(id);
  for (const int id : solution.units_on_host(solution.host_of(source))) consider(id);
  for (const int id : solution.wide_units()) consider(id);
  std::sort(by_share_.begin(), by_share_.end());
  tables_.clear();
  for (const auto& [share, table] : by_share_) {
    if (tables_.size() == kTables) break;
    if (std::find(tables_.begin(), tables_.end(), table) == tables_.end()) {
      tables_.push_back(table);
    }
  }
}

void TableNeighbours::Relayout(Solution& solution, const ExchangePricer& pricer, int table,
                               ExchangeList& list) {
  const std::span<const int> units = solution.units_of_table(table);
  leaving_.assign(units.begin(), units.end());
  for (const TableLayout& layout : LayoutsOf(table)) {
    context_.AddWork(Work::kRelayout, static_cast<std::size_t>(layout.blocks * layout.holders));
    LetLeave(solution, pricer);
    if (!Place(solution, pricer, table, layout, -1, -1)) continue;
    const double estimate = rough_.Of(solution, pricer, leaving_, coming_);
    if (list.Wants(estimate)) list.Add(estimate, leaving_, coming_);
  }
}

bool TableNeighbours::RandomRelayout(Solution& solution, const ExchangePricer& pricer,
                                     Random& random) {
  const int table = static_cast<int>(random.Below(context_.request().tables.size()));
  if (solution.kept(table) != nullptr) return false;
  const std::vector<TableLayout>& layouts = LayoutsOf(table);
  const TableLayout layout = layouts[random.Below(layouts.size())];
  Intern(table);
  book_.PredictNew();
  SetStandings(pricer);
  const std::span<const int> units = solution.units_of_table(table);
  leaving_.assign(units.begin(), units.end());
  LetLeave(solution, pricer);
  if (!Place(solution, pricer, table, layout, -1, -1)) return false;
  if (!solution.Allows(leaving_, coming_)) return false;
  for (const int id : leaving_) solution.Remove(id);
  for (const Unit& unit : coming_) solution.Add(unit);
  return true;
}

void TableNeighbours::MoveHostBlocks(Solution& solution, const ExchangePricer& pricer, int host,
                                     ExchangeList& list) {
  leaving_.clear();
  LetLeave(solution, pricer);
  SortHosts(solution);
  target_hosts_.clear();
  for (const auto& [standing_ms, target] : hosts_) {
    if (target != host && target_hosts_.size() < kHosts) target_hosts_.push_back(target);
  }
  const auto blocks = solution.units_on_host(host);
  const auto at = [&](Unit unit, int place) {
    unit.place = place;
    unit.shards = book_.Shards(unit.table, unit.type, unit.cols, solution.host(place).count);
    return unit;
  };
  for (const int target : target_hosts_) {  // hosts may differ in size
    for (const int id : blocks) at(solution.unit(id), target);
    for (const int id : solution.units_on_host(target)) at(solution.unit(id), host);
  }
  book_.PredictNew();
  for (const int id : blocks) {
    for (const int target : target_hosts_) {
      leaving_ = {id};
      coming_ = {at(solution.unit(id), target)};
      double estimate = rough_.Of(solution, pricer, leaving_, coming_);
      if (list.Wants(estimate)) list.Add(estimate, leaving_, coming_);
      for (const int back : solution.units_on_host(target)) {
        if (solution.unit(back).table == solution.unit(id).table) continue;
        leaving_ = {id, back};
        coming_ = {at(solution.unit(id), target), at(solution.unit(back), host)};
        estimate = rough_.Of(solution, pricer, leaving_, coming_);
        if (list.Wants(estimate)) list.Add(estimate, leaving_, coming_);
      }
    }
  }
}

// Every table keeps its type and number of blocks.
void TableNeighbours::MoveGroup(Solution& solution, const ExchangePricer& pricer,
                                const std::vector<int>& group, ExchangeList& list) {
  std::vector<int> ids;
  for (const int table : group) {
    const auto units = solution.units_of_table(table);
    ids.insert(ids.end(), units.begin(), units.end());
  }
  const auto layout_of = [&](int table) {
    const auto units = solution.units_of_table(table);
    const Unit& unit = solution.unit(units.front());
    return TableLayout{unit.type, static_cast<int>(units.size()),
                       unit.spread() == Spread::kSubset ? unit.shards.count : 1};
  };
  const auto try_at = [&](int host, int rank) {
    leaving_ = ids;
    LetLeave(solution, pricer);
    std::vector<std::pair<int, int>> rank_of_group;  // rank groups within the host's group
    for (const int table : group) {
      int on = rank;
      const int together = rules_.of(table).rank_group;
      if (rank < 0 && together >= 0) {
        const auto known = std::find_if(rank_of_group.begin(), rank_of_group.end(),
                                        [&](const auto& entry) { return entry.first == together; });
        if (known == rank_of_group.end()) {
          const HostRanks& within = solution.host(host);
          const auto first = standing_ms_.begin() + within.first;
          on = static_cast<int>(std::min_element(first, first + within.count) -
                                standing_ms_.begin());
          rank_of_group.emplace_back(together, on);
        } else {
          on = known->second;
        }
      }
      if (!Place(solution, pricer, table, layout_of(table), host, on)) return;
    }
    const double estimate = rough_.Of(solution, pricer, leaving_, coming_);
    if (list.Wants(estimate)) list.Add(estimate, leaving_, coming_);
  };
  leaving_.clear();
  LetLeave(solution, pricer);
  if (rules_.of(group.front()).host_group >= 0) {
    SortHosts(solution);
    target_hosts_.clear();
    for (const auto& [standing_ms, host] : hosts_) {
      if (target_hosts_.size() < kHosts) target_hosts_.push_back(host);
    }
    for (const int host : target_hosts_) try_at(host, -1);
    return;
  }
  std::vector<int> ranks = rules_.of(group.front()).ranks->ranks();
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return standing_ms_[static_cast<std::size_t>(a)] < standing_ms_[static_cast<std::size_t>(b)];
  });
  ranks.resize(std::min(ranks.size(), kGroupRanks));
  for (const int rank : ranks) try_at(-1, rank);
}

}  // namespace neuroshard
