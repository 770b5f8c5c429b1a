// What may leave the source, arrive at a target and come back; rank_neighbours.cc puts exchanges
// together from it.
#include <algorithm>

#include "server/search/refine/rank_neighbours.h"

namespace neuroshard {
namespace {

// Ranks that something may go to: the lowest ones, three in four by time, the others by load.
constexpr std::size_t kTargets = 16;
// Different numbers of columns of a shard that are tried.
constexpr std::int64_t kWidths = 8;
// Columns of a shard that come back for as many, at most.
constexpr std::int64_t kWidestReturn = 16;

// Calls `add` with the columns that may leave a shard of `cols`: all, or a multiple of the
// alignment.
template <typename Add>
void ForWidths(std::int64_t cols, const Add& add) {
  const std::int64_t granules = (cols - 1) / kColumnAlignment;  // at most so many leave something
  const std::int64_t widths = std::min(granules, kWidths);
  for (std::int64_t i = 1; i <= widths; ++i) {
    const std::int64_t g =
        granules <= kWidths || i <= 2 ? i : 2 + (granules - 2) * (i - 2) / (kWidths - 2);
    add(g * kColumnAlignment);
  }
  add(cols);
}

}  // namespace

void RankNeighbours::ChooseTargets(const Solution& solution, const Outlook& outlook, int source) {
  targets_.clear();
  for (int r = 0; r < solution.num_ranks(); ++r) {
    if (r != source) targets_.push_back(r);
  }
  if (targets_.size() <= kTargets) return;
  const auto bring_lowest = [&](std::size_t begin, std::size_t end, const auto& value) {
    std::partial_sort(targets_.begin() + static_cast<std::ptrdiff_t>(begin),
                      targets_.begin() + static_cast<std::ptrdiff_t>(end), targets_.end(),
                      [&](int a, int b) {
                        const double of_a = value(outlook.rank(a));
                        const double of_b = value(outlook.rank(b));
                        return of_a != of_b ? of_a < of_b : a < b;
                      });
  };
  bring_lowest(0, kTargets * 3 / 4, [](const RankStanding& r) { return r.ready_ms(); });
  bring_lowest(kTargets * 3 / 4, kTargets, [](const RankStanding& r) { return r.forward_load; });
  targets_.resize(kTargets);
}

void RankNeighbours::ListParts(const Solution& solution, int source) {
  parts_.clear();
  for (const int id : solution.units_on_rank(source)) {
    const Unit& unit = solution.unit(id);
    const int pieces = static_cast<int>(solution.units_of_table(unit.table).size());
    const bool cuts = layouts_.CutsAnywhere(unit.table);
    // With joined columns there are as many pieces as before, otherwise one more.
    const auto same = layouts_.OnRanks(unit.table, pieces);
    const auto more = layouts_.OnRanks(unit.table, pieces + 1);
    const auto fewer = cuts && pieces > 1 ? layouts_.OnRanks(unit.table, pieces - 1) : std::nullopt;
    const auto left_type = layouts_.OnRanks(unit.table, std::max(2, pieces));
    ForWidths(unit.cols, [&](std::int64_t cols) {
      Part part{.unit = id, .cols = cols, .left = unit};
      part.left.cols = unit.cols - cols;
      const bool whole = part.left.cols == 0;
      if (!whole) {
        if (!cuts || !left_type || !layouts_.AllowsWidth(unit.table, part.left.cols)) return;
        part.left.type = *left_type;
        part.left.shards = book_.Shards(unit.table, *left_type, part.left.cols, 1);
      }
      const auto alone_type = whole ? same : more;
      if (alone_type && layouts_.AllowsWidth(unit.table, cols)) {
        Unit& arriving = part.arriving.emplace(unit);
        arriving.type = *alone_type;
        arriving.cols = cols;
        arriving.shards = book_.Shards(unit.table, *alone_type, cols, 1);
      }
      if (cuts) part.joined_type = whole ? fewer : same;
      parts_.push_back(part);
    });
  }
}

// Fills joined_.
void RankNeighbours::ListTargetsOf(const Solution& solution, const Unit& unit) {
  joined_.assign(targets_.size(), -1);
  for (const int piece : solution.units_of_table(unit.table)) {
    const int target = target_of_rank_[static_cast<std::size_t>(solution.unit(piece).place)];
    if (target >= 0) joined_[static_cast<std::size_t>(target)] = piece;
  }
}

void RankNeighbours::ListTransfers(const Solution& solution) {
  transfers_.clear();
  target_of_rank_.assign(static_cast<std::size_t>(solution.num_ranks()), -1);
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    target_of_rank_[static_cast<std::size_t>(targets_[t])] = static_cast<int>(t);
  }
  int listed = -1;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    const Unit& unit = solution.unit(part.unit);
    if (part.unit != listed) ListTargetsOf(solution, unit);
    listed = part.unit;
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      Transfer transfer;
      transfer.part = static_cast<int>(p);
      transfer.target = static_cast<int>(t);
      transfer.joined = joined_[t];
      if (transfer.joined < 0) {
        if (!part.arriving) continue;
        transfer.arriving = *part.arriving;
      } else {
        if (!part.joined_type) continue;
        transfer.arriving = unit;
        transfer.arriving.type = *part.joined_type;
        transfer.arriving.cols = part.cols + solution.unit(transfer.joined).cols;
        transfer.arriving.shards =
            book_.Shards(unit.table, *part.joined_type, transfer.arriving.cols, 1);
      }
      transfer.arriving.place = targets_[t];
      transfers_.push_back(transfer);
    }
  }
}

void RankNeighbours::ListReturns(const Solution& solution, int source, Reach reach) {
  returns_.clear();
  returns_end_.assign(1, 0);
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    for (const int id : solution.units_on_rank(targets_[t])) {
      ListReturnsOf(solution, id, static_cast<int>(t), source, reach);
    }
    returns_end_.push_back(returns_.size());
  }
}

void RankNeighbours::ListReturnsOf(const Solution& solution, int id, int target, int source,
                                   Reach reach) {
  const Unit& unit = solution.unit(id);
  const std::span<const int> siblings = solution.units_of_table(unit.table);
  const int pieces = static_cast<int>(siblings.size());
  const bool cuts = layouts_.CutsAnywhere(unit.table);
  Return back{.unit = id, .target = target};
  for (const int piece : siblings) {
    if (solution.unit(piece).place == source) back.joined = piece;
  }
  if (back.joined >= 0 && !cuts) return;
  const int fewer = back.joined >= 0 ? 1 : 0;
  const auto add = [&](std::int64_t cols) {
    back.cols = cols;
    back.left = unit;
    back.left.cols = unit.cols - cols;
    const auto type = layouts_.OnRanks(unit.table, pieces + (back.whole() ? 0 : 1) - fewer);
    if (!type) return;
    back.arriving = unit;
    back.arriving.type = *type;
    back.arriving.place = source;
    back.arriving.cols = cols + (fewer > 0 ? solution.unit(back.joined).cols : 0);
    if (!layouts_.AllowsWidth(unit.table, back.arriving.cols)) return;
    if (!back.whole()) {
      if (!layouts_.AllowsWidth(unit.table, back.left.cols)) return;
      back.left.type = *type;
      back.left.shards = book_.Shards(unit.table, *type, back.left.cols, 1);
    }
    back.arriving.shards = book_.Shards(unit.table, *type, back.arriving.cols, 1);
    returns_.push_back(back);
  };
  add(unit.cols);
  if (reach == Reach::kNear || !cuts) return;
  for (std::int64_t cols = kColumnAlignment; cols <= kWidestReturn && cols < unit.cols; cols *= 2) {
    add(cols);
  }
}

}  // namespace neuroshard
