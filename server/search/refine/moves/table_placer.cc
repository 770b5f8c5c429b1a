#include "server/search/refine/moves/table_placer.h"

#include <algorithm>
#include <optional>

#include "common/base/positions.h"
#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Ranks that blocks may go to, the lowest.
constexpr std::size_t kLowest = 64;

}  // namespace

TablePlacer::TablePlacer(Workbench& bench)
    : MoveTools(bench),
      numbers_(Positions<int>(static_cast<std::size_t>(rules_.num_ranks()))),
      layouts_of_(context_.request().tables.size()) {}

const std::vector<TableLayout>& TablePlacer::LayoutsOf(int table) {
  std::vector<TableLayout>& layouts = layouts_of_[static_cast<std::size_t>(table)];
  if (layouts.empty()) layouts = layouts_.Of(table);
  return layouts;
}

TableLayout TablePlacer::Stay(int table, TableLayout layout) const {
  if (!rules_.has_off_device() || layout.type == ShardingType::kDataParallel) return layout;
  layout.residency = solution_.residency_of(table);
  // What was data_parallel and may not be fused.
  if (!rules_.Allows(table, layout.residency, layout.type)) {
    const OffDevice least = rules_.LeastOnDevice(table);
    layout.residency = least.empty() ? rules_.of(table).residencies->front() : least[0];
  }
  return layout;
}

void TablePlacer::AddShards(int table, const TableLayout& layout) {
  layouts_.Widths(table, layout.blocks, widths_);
  for (const std::int64_t cols : widths_) layouts_.Shards(shard_table_, table, layout, cols);
}

void TablePlacer::AddShards(int table) {
  for (const TableLayout& one : LayoutsOf(table)) {
    AddShards(table, Stay(table, one));
  }
}

void TablePlacer::Reset() {
  now_ms_ = pricer_.objective().TotalsMs();
  total_ms_ = now_ms_;
  more_bytes_.assign(now_ms_.size(), 0);
  counted_.clear();
  added_.clear();
  lowest_ = pricer_.objective().Lowest(kLowest);
  now_lowest_ = lowest_.size();
  std::ranges::sort(lowest_);
}

void TablePlacer::Without(std::span<const int> removed) {
  for (const int rank : counted_) {
    const std::size_t r = static_cast<std::size_t>(rank);
    total_ms_[r] = now_ms_[r];
    more_bytes_[r] = 0;
  }
  counted_.clear();
  added_.clear();
  for (const int id : removed) Count(solution_.unit(id), -1);
  lowest_.resize(now_lowest_);
  if (now_lowest_ == total_ms_.size()) return;
  // A rank that something was removed from may be among the lowest now.
  for (const int rank : counted_) {
    if (!std::binary_search(lowest_.begin(),
                            lowest_.begin() + static_cast<std::ptrdiff_t>(now_lowest_), rank)) {
      lowest_.push_back(rank);
    }
  }
}

void TablePlacer::Count(const Unit& unit, int sign) {
  solution_.ForEachShard(unit, [&](int rank, int shard) {
    counted_.push_back(rank);
    total_ms_[static_cast<std::size_t>(rank)] += sign * pricer_.ShareOf(rank, shard);
    more_bytes_[static_cast<std::size_t>(rank)] += sign * shard_table_.bytes(shard);
  });
}

bool TablePlacer::Place(int table, const TableLayout& layout, int host, int rank) {
  if (layout.type == ShardingType::kTableColumnWise && layout.blocks > 1 && host < 0 && rank < 0) {
    host = LowestHosts(rules_.hosts(), total_ms_, 1).front();
  }
  layouts_.Widths(table, layout.blocks, widths_);
  return std::ranges::all_of(widths_, [&](std::int64_t cols) {
    return PlaceUnit(
        {.table = table, .type = layout.type, .cols = cols, .residency = layout.residency},
        layout.holders, host, rank);
  });
}

bool TablePlacer::HasRoom(const Unit& unit) const {
  for (int i = 0; i < unit.shards.count; ++i) {
    if (!Fits(solution_.RankOf(unit, i), shard_table_.bytes(unit.shards.at(i)))) return false;
  }
  return true;
}

bool TablePlacer::PlaceUnit(Unit unit, int holders, int host, int rank) {
  const TableRules& rules = rules_.of(unit.table);
  const Spread spread = unit.spread();
  if (rank >= 0 && (spread == Spread::kOneHost || spread == Spread::kSubset)) return false;
  std::span<const int> ranks = rules.ranks->ranks();
  if (spread == Spread::kRank) {
    if (rank >= 0) {
      ranks = {&rank, 1};
    } else if (host >= 0) {
      const HostRanks& within = solution_.host(host);
      ranks = std::span(numbers_).subspan(static_cast<std::size_t>(within.first),
                                          static_cast<std::size_t>(within.count));
    } else if (rules.ranks->all()) {
      ranks = lowest_;
    }
  }
  const std::optional<Unit> placed = OnLowestPlace(
      unit, {ranks, rules.ranks->whole_hosts(), holders}, total_ms_, solution_, shard_table_,
      [&](int r, int shard) {
        return (host < 0 || solution_.host_of(r) == host) && Fits(r, shard_table_.bytes(shard));
      },
      [&](const Unit& at) {
        if (spread == Spread::kOneHost) return (host < 0 || at.place == host) && HasRoom(at);
        if (spread != Spread::kRank) return true;
        if (!rules.ranks->contains(at.place) || !HasRoom(at)) return false;
        const bool taken = std::ranges::any_of(added_, [&](const Unit& other) {
          return other.table == at.table && other.place == at.place;
        });
        return !taken || (rank >= 0 && !rules.distinct_ranks);
      });
  if (!placed) return false;
  added_.push_back(*placed);
  Count(*placed, 1);
  return true;
}

}  // namespace neuroshard
