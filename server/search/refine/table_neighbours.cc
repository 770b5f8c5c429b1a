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
// Ranks that blocks may go to, the lowest.
constexpr std::size_t kLowest = 64;
constexpr std::size_t kHosts = 8;

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

void TableNeighbours::SetStandings(const ExchangePricer& pricer) {
  const std::size_t ranks = static_cast<std::size_t>(pricer.outlook().num_ranks());
  now_ms_.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    now_ms_[r] = pricer.outlook().rank(static_cast<int>(r)).total_ms();
  }
  standing_ms_ = now_ms_;
  more_bytes_.assign(ranks, 0);
  counted_.clear();
  lowest_.resize(ranks);
  std::iota(lowest_.begin(), lowest_.end(), 0);
  now_lowest_ = std::min(ranks, kLowest);
  if (ranks <= kLowest) return;
  std::nth_element(lowest_.begin(), lowest_.begin() + kLowest, lowest_.end(), [&](int a, int b) {
    const double of_a = now_ms_[static_cast<std::size_t>(a)];
    const double of_b = now_ms_[static_cast<std::size_t>(b)];
    return of_a != of_b ? of_a < of_b : a < b;
  });
  lowest_.resize(kLowest);
  std::sort(lowest_.begin(), lowest_.end());
}

void TableNeighbours::LetLeave(const Solution& solution, const ExchangePricer& pricer) {
  for (const int rank : counted_) {
    const std::size_t r = static_cast<std::size_t>(rank);
    standing_ms_[r] = now_ms_[r];
    more_bytes_[r] = 0;
  }
  counted_.clear();
  coming_.clear();
  for (const int id : leaving_) Count(solution, pricer, solution.unit(id), -1);
  lowest_.resize(now_lowest_);
  if (now_lowest_ == standing_ms_.size()) return;
  // Where something left may be among the lowest now.
  for (const int rank : counted_) {
    if (!std::binary_search(lowest_.begin(),
                            lowest_.begin() + static_cast<std::ptrdiff_t>(now_lowest_), rank)) {
      lowest_.push_back(rank);
    }
  }
}

void TableNeighbours::Count(const Solution& solution, const ExchangePricer& pricer,
                            const Unit& unit, int sign) {
  for (int i = 0; i < unit.shards.count; ++i) {
    const int rank = solution.RankOf(unit, i);
    counted_.push_back(rank);
    standing_ms_[static_cast<std::size_t>(rank)] +=
        sign * rough_.ShareOf(solution, pricer, rank, unit.shards.at(i));
    more_bytes_[static_cast<std::size_t>(rank)] += sign * book_.bytes(unit.shards.at(i));
  }
}

void TableNeighbours::Come(const Solution& solution, const ExchangePricer& pricer,
                           const Unit& unit) {
  coming_.push_back(unit);
  Count(solution, pricer, unit, 1);
}

void TableNeighbours::Relayout(Solution& solution, const ExchangePricer& pricer, int table,
                               ExchangeList& list) {
  const std::span<const int> units = solution.units_of_table(table);
  leaving_.assign(units.begin(), units.end());
  for (const TableLayout& layout : LayoutsOf(table)) {
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

bool TableNeighbours::Place(Solution& solution, const ExchangePricer& pricer, int table,
                            const TableLayout& layout, int host, int rank) {
  Unit unit{.table = table, .type = layout.type};
  layouts_.Widths(table, layout.blocks, widths_);
  if (layout.type == ShardingType::kTableColumnWise && layout.blocks > 1 && host < 0 && rank < 0) {
    SortHosts(solution);
    host = hosts_.front().second;
  }
  for (const std::int64_t cols : widths_) {
    unit.cols = cols;
    bool placed = false;
    switch (unit.spread()) {
      case Spread::kRank:
        placed = PlaceOnRank(solution, pricer, unit, host, rank);
        break;
      case Spread::kHost:
        placed = rank < 0 && PlaceOnHost(solution, pricer, unit, host);
        break;
      case Spread::kSubset:
        placed = rank < 0 && PlaceOnSubset(solution, pricer, unit, layout.holders, host);
        break;
      case Spread::kRows:
      case Spread::kCopies:
        unit.shards = book_.Shards(table, unit.type, cols, rules_.num_ranks());
        Come(solution, pricer, unit);
        placed = true;
        break;
    }
    if (!placed) return false;
  }
  return true;
}

bool TableNeighbours::PlaceOnRank(Solution& solution, const ExchangePricer& pricer, Unit unit,
                                  int host, int rank) {
  const TableRules& rules = rules_.of(unit.table);
  unit.shards = book_.Shards(unit.table, unit.type, unit.cols, 1);
  const std::int64_t bytes = book_.bytes(unit.shards.full);
  int best = -1;
  const auto consider = [&](int r) {
    if (!rules.ranks->contains(r) || !Fits(solution, r, bytes)) return;
    if (best >= 0 &&
        standing_ms_[static_cast<std::size_t>(r)] >= standing_ms_[static_cast<std::size_t>(best)]) {
      return;
    }
    const bool taken = std::any_of(coming_.begin(), coming_.end(), [&](const Unit& other) {
      return other.table == unit.table && other.place == r;
    });
    if (!taken || (rank >= 0 && !rules.distinct_ranks)) best = r;
  };
  if (rank >= 0) {
    consider(rank);
  } else if (host >= 0) {
    const HostRanks& within = solution.host(host);
    for (int r = within.first; r < within.first + within.count; ++r) consider(r);
  } else if (rules.ranks->all()) {
    for (const int r : lowest_) consider(r);
  } else {
    for (const int r : rules.ranks->ranks()) consider(r);
  }
  if (best < 0) return false;
  unit.place = best;
  Come(solution, pricer, unit);
  return true;
}

bool TableNeighbours::PlaceOnHost(Solution& solution, const ExchangePricer& pricer, Unit unit,
                                  int host) {
  double lowest = std::numeric_limits<double>::infinity();
  Unit best = unit;
  for (const int h : rules_.of(unit.table).ranks->whole_hosts()) {
    if (host >= 0 && h != host) continue;
    const HostRanks& ranks = solution.host(h);
    const auto first = standing_ms_.begin() + ranks.first;
    const double standing_ms = *std::max_element(first, first + ranks.count);
    if (standing_ms >= lowest) continue;
    unit.place = h;
    unit.shards = book_.Shards(unit.table, unit.type, unit.cols, ranks.count);
    bool fits = true;
    for (int i = 0; i < ranks.count && fits; ++i) {
      fits = Fits(solution, ranks.first + i, book_.bytes(unit.shards.at(i)));
    }
    if (!fits) continue;
    lowest = standing_ms;
    best = unit;
  }
  if (lowest == std::numeric_limits<double>::infinity()) return false;
  Come(solution, pricer, best);
  return true;
}

bool TableNeighbours::PlaceOnSubset(Solution& solution, const ExchangePricer& pricer, Unit unit,
                                    int holders, int host) {
  unit.shards = book_.Shards(unit.table, unit.type, unit.cols, holders);
  const std::int64_t bytes = book_.bytes(unit.shards.full);
  std::vector<int> ranks;
  for (const int r : rules_.of(unit.table).ranks->ranks()) {
    if ((host < 0 || solution.host_of(r) == host) && Fits(solution, r, bytes)) ranks.push_back(r);
  }
  if (ranks.size() < static_cast<std::size_t>(holders)) return false;
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return standing_ms_[static_cast<std::size_t>(a)] < standing_ms_[static_cast<std::size_t>(b)];
  });
  ranks.resize(static_cast<std::size_t>(holders));
  std::sort(ranks.begin(), ranks.end());
  unit.place = solution.AddSubset(std::move(ranks));
  Come(solution, pricer, unit);
  return true;
}

void TableNeighbours::SortHosts(const Solution& solution) {
  hosts_.clear();
  for (int h = 0; h < solution.num_hosts(); ++h) {
    const auto first = standing_ms_.begin() + solution.host(h).first;
    hosts_.emplace_back(*std::max_element(first, first + solution.host(h).count), h);
  }
  std::sort(hosts_.begin(), hosts_.end());
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
  ranks.resize(std::min(ranks.size(), kLowest));
  for (const int rank : ranks) try_at(-1, rank);
}

}  // namespace neuroshard
