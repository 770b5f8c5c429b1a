// Where the parts of a table that is laid out anew would go; table_neighbours.cc says which tables
// and layouts.
#include <algorithm>
#include <limits>
#include <numeric>

#include "server/search/refine/table_neighbours.h"

namespace neuroshard {
namespace {

// Ranks that blocks may go to, the lowest.
constexpr std::size_t kLowest = 64;

}  // namespace

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

}  // namespace neuroshard
