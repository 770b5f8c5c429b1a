#include "server/search/refine/moves/rank_transfers.h"

#include <algorithm>

namespace neuroshard {
namespace {

// Ranks that something may go to: the lowest ones, three in four by time, the others by load.
constexpr std::size_t kTargets = 16;
// Different numbers of columns of a shard that are tried.
constexpr std::int64_t kWidths = 8;

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

void RankTransfers::List(const Solution& solution, const Objective& objective, int source) {
  ChooseTargets(solution, objective, source);
  ListDepartures(solution, source);
  ListTransfers(solution);
  ListReturns(solution, source);
  shard_table_.PredictNew();
  FindSlots(solution, source);
}

void RankTransfers::ChooseTargets(const Solution& solution, const Objective& objective,
                                  int source) {
  targets_.clear();
  for (int r = 0; r < solution.num_ranks(); ++r) {
    if (r != source) targets_.push_back(r);
  }
  if (targets_.size() <= kTargets) return;
  const auto bring_lowest = [&](std::size_t begin, std::size_t end, const auto& value) {
    std::partial_sort(targets_.begin() + static_cast<std::ptrdiff_t>(begin),
                      targets_.begin() + static_cast<std::ptrdiff_t>(end), targets_.end(),
                      [&](int a, int b) {
                        const double of_a = value(objective.rank(a));
                        const double of_b = value(objective.rank(b));
                        return of_a != of_b ? of_a < of_b : a < b;
                      });
  };
  bring_lowest(0, kTargets * 3 / 4, [](const RankPrice& r) { return r.ready_ms(); });
  bring_lowest(kTargets * 3 / 4, kTargets, [](const RankPrice& r) { return r.forward_load; });
  targets_.resize(kTargets);
}

void RankTransfers::ListDepartures(const Solution& solution, int source) {
  departures_.clear();
  for (const int id : solution.units_on_rank(source)) {
    const Unit& unit = solution.unit(id);
    const int blocks = static_cast<int>(solution.units_of_table(unit.table).size());
    const bool cuts = layouts_.CutsAnywhere(unit.table);
    // With joined columns there are as many blocks as before, otherwise one more.
    const auto same = layouts_.OnRanks(unit.table, blocks);
    const auto more = layouts_.OnRanks(unit.table, blocks + 1);
    const auto fewer = cuts && blocks > 1 ? layouts_.OnRanks(unit.table, blocks - 1) : std::nullopt;
    const auto rest_type = layouts_.OnRanks(unit.table, std::max(2, blocks));
    ForWidths(unit.cols, [&](std::int64_t cols) {
      Departure departure{.unit = id, .cols = cols, .rest = unit};
      departure.rest.cols = unit.cols - cols;
      const bool whole = departure.rest.cols == 0;
      if (!whole) {
        if (!cuts || !rest_type || !layouts_.AllowsWidth(unit.table, departure.rest.cols)) return;
        departure.rest.type = *rest_type;
        departure.rest.shards =
            shard_table_.Shards(unit.table, *rest_type, departure.rest.cols, 1, unit.residency);
      }
      const auto alone_type = whole ? same : more;
      if (alone_type && layouts_.AllowsWidth(unit.table, cols)) {
        Unit& arriving = departure.arriving.emplace(unit);
        arriving.type = *alone_type;
        arriving.cols = cols;
        arriving.shards = shard_table_.Shards(unit.table, *alone_type, cols, 1, unit.residency);
      }
      if (cuts) departure.joined_type = whole ? fewer : same;
      departures_.push_back(departure);
    });
  }
}

void RankTransfers::FindJoined(const Solution& solution, const Unit& unit) {
  joined_.assign(targets_.size(), -1);
  for (const int id : solution.units_of_table(unit.table)) {
    const int target = target_of_rank_[static_cast<std::size_t>(solution.unit(id).place)];
    if (target >= 0) joined_[static_cast<std::size_t>(target)] = id;
  }
}

void RankTransfers::ListTransfers(const Solution& solution) {
  transfers_.clear();
  target_of_rank_.assign(static_cast<std::size_t>(solution.num_ranks()), -1);
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    target_of_rank_[static_cast<std::size_t>(targets_[t])] = static_cast<int>(t);
  }
  int listed = -1;
  for (std::size_t d = 0; d < departures_.size(); ++d) {
    const Departure& departure = departures_[d];
    const Unit& unit = solution.unit(departure.unit);
    if (departure.unit != listed) FindJoined(solution, unit);
    listed = departure.unit;
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      Transfer transfer;
      transfer.departure = static_cast<int>(d);
      transfer.target = static_cast<int>(t);
      transfer.joined = joined_[t];
      if (transfer.joined < 0) {
        if (!departure.arriving) continue;
        transfer.arriving = *departure.arriving;
      } else {
        if (!departure.joined_type) continue;
        transfer.arriving = unit;
        transfer.arriving.type = *departure.joined_type;
        transfer.arriving.cols = departure.cols + solution.unit(transfer.joined).cols;
        if (!layouts_.AllowsWidth(unit.table, transfer.arriving.cols)) continue;
        transfer.arriving.shards = shard_table_.Shards(unit.table, *departure.joined_type,
                                                       transfer.arriving.cols, 1, unit.residency);
      }
      transfer.arriving.place = targets_[t];
      transfers_.push_back(transfer);
    }
  }
}

void RankTransfers::ListReturns(const Solution& solution, int source) {
  returns_.clear();
  returns_begin_.assign(1, 0);
  for (const int target : targets_) {
    for (const int id : solution.units_on_rank(target)) {
      const Unit& unit = solution.unit(id);
      const std::span<const int> siblings = solution.units_of_table(unit.table);
      Return back{.unit = id, .arriving = unit};
      for (const int sibling : siblings) {
        if (solution.unit(sibling).place == source) back.joined = sibling;
      }
      int blocks = static_cast<int>(siblings.size());
      if (back.joined >= 0) {
        if (!layouts_.CutsAnywhere(unit.table)) continue;
        back.arriving.cols += solution.unit(back.joined).cols;
        --blocks;
      }
      const auto type = layouts_.OnRanks(unit.table, blocks);
      if (!type || !layouts_.AllowsWidth(unit.table, back.arriving.cols)) continue;
      back.arriving.type = *type;
      back.arriving.place = source;
      back.arriving.shards =
          shard_table_.Shards(unit.table, *type, back.arriving.cols, 1, unit.residency);
      returns_.push_back(back);
    }
    returns_begin_.push_back(returns_.size());
  }
}

void RankTransfers::FindSlots(const Solution& solution, int source) {
  const auto find = [&](int rank, int without, int with) {
    return rank_costs_.Find(solution, rank, without, with);
  };
  for (Departure& departure : departures_) {
    const int before = solution.unit(departure.unit).shards.full;
    departure.source_slot =
        find(source, before, departure.rest.cols > 0 ? departure.rest.shards.full : -1);
  }
  for (Transfer& transfer : transfers_) {
    const int before = transfer.joined >= 0 ? solution.unit(transfer.joined).shards.full : -1;
    transfer.target_slot = find(transfer.arriving.place, before, transfer.arriving.shards.full);
  }
  for (Return& back : returns_) {
    const Unit& unit = solution.unit(back.unit);
    back.target_slot = find(unit.place, unit.shards.full, -1);
    back.source_slot = find(source, back.joined >= 0 ? solution.unit(back.joined).shards.full : -1,
                            back.arriving.shards.full);
  }
  rank_costs_.EvaluateQueued();
}

}  // namespace neuroshard
