#include "server/search/refine/rank_neighbours.h"

#include <algorithm>
#include <array>

namespace neuroshard {
namespace {

// Ranks that something may go to: the lowest ones, half of them by time and half by load.
constexpr std::size_t kTargets = 16;
// Different numbers of columns of a shard that are tried.
constexpr std::int64_t kWidths = 8;
// Columns of a shard that come back for as many, at most.
constexpr std::int64_t kWidestReturn = 16;

// What a rank exchanges, less `before` and plus `after`.
void Change(RankShift& shift, const CommLoad& before, const CommLoad& after) {
  shift.forward_load += after.forward - before.forward;
  shift.backward_load += after.backward - before.backward;
}

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

RankNeighbours::RankNeighbours(const TableLayouts& layouts, ShardBook& book, ComputeMemo& memo)
    : layouts_(layouts), book_(book), memo_(memo) {}

void RankNeighbours::Collect(const Solution& solution, const ExchangePricer& pricer, int source,
                             Reach reach, ExchangeList& list) {
  memo_.TrimIfLarge();
  ChooseTargets(solution, pricer.outlook(), source);
  ListParts(solution, source);
  ListTransfers(solution);
  ListReturns(solution, source, reach);
  book_.PredictNew();
  FindSlots(solution, source);
  AddTransfers(solution, pricer, source, list);
  AddSwaps(solution, pricer, source, reach, list);
  if (reach == Reach::kFar) AddChains(solution, pricer, source, list);
}

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

void RankNeighbours::FindSlots(const Solution& solution, int source) {
  // What is looked up is all over the memo: once to bring it closer, once to read it.
  const auto look_up = [&](const auto& find) {
    for (Part& part : parts_) {
      const int before = solution.unit(part.unit).shards.full;
      find(part.source_slot, source, before, part.left.cols > 0 ? part.left.shards.full : -1);
    }
    for (Transfer& transfer : transfers_) {
      const int before = transfer.joined >= 0 ? solution.unit(transfer.joined).shards.full : -1;
      find(transfer.target_slot, transfer.arriving.place, before, transfer.arriving.shards.full);
    }
    for (Return& back : returns_) {
      const Unit& unit = solution.unit(back.unit);
      find(back.target_slot, unit.place, unit.shards.full,
           back.whole() ? -1 : back.left.shards.full);
      find(back.source_slot, source, back.joined >= 0 ? solution.unit(back.joined).shards.full : -1,
           back.arriving.shards.full);
    }
  };
  look_up([&](ComputeMemo::Slot&, int rank, int without, int with) {
    memo_.Expect(solution, rank, without, with);
  });
  look_up([&](ComputeMemo::Slot& slot, int rank, int without, int with) {
    slot = memo_.Find(solution, rank, without, with);
  });
  memo_.EvaluateQueued();
}

void RankNeighbours::AddTransfers(const Solution& solution, const ExchangePricer& pricer,
                                  int source, ExchangeList& list) {
  const Outlook& outlook = pricer.outlook();
  const RankStanding& now = outlook.rank(source);
  others_.clear();
  for (const int target : targets_)
    others_.push_back(outlook.OthersThan(std::array{source, target}));
  for (const Transfer& transfer : transfers_) {
    const Part& part = parts_[static_cast<std::size_t>(transfer.part)];
    const Unit& unit = solution.unit(part.unit);
    const int target = transfer.arriving.place;
    CommLoad replaced;
    std::int64_t more_bytes = BytesOf(transfer.arriving);
    if (transfer.joined >= 0) {
      const Unit& joined = solution.unit(transfer.joined);
      replaced = LoadOf(joined);
      more_bytes -= BytesOf(joined);
    }
    if (!solution.Fits(target, more_bytes)) continue;
    const CommLoad before = LoadOf(unit);
    const CommLoad left = LoadOf(part.left);
    const CommLoad arriving = LoadOf(transfer.arriving);
    const RankStanding& there = outlook.rank(target);
    const std::array shifts = {
        RankShift{source, memo_.cost_ms(part.source_slot),
                  now.forward_load + left.forward - before.forward,
                  now.backward_load + left.backward - before.backward},
        RankShift{target, memo_.cost_ms(transfer.target_slot),
                  there.forward_load + arriving.forward - replaced.forward,
                  there.backward_load + arriving.backward - replaced.backward}};
    const double estimate =
        outlook.Estimate(shifts, others_[static_cast<std::size_t>(transfer.target)],
                         pricer.response().coefficients(), list.limit_ms());
    if (!list.Wants(estimate)) continue;
    const std::array leaving = {part.unit, transfer.joined};
    const std::array coming = {transfer.arriving, part.left};
    list.Add(estimate, std::span(leaving).first(transfer.joined >= 0 ? 2 : 1),
             std::span(coming).first(part.left.cols > 0 ? 2 : 1));
  }
}

// Costs of two changes of one rank together are taken to add up.
void RankNeighbours::AddSwaps(const Solution& solution, const ExchangePricer& pricer, int source,
                              Reach reach, ExchangeList& list) {
  const Outlook& outlook = pricer.outlook();
  const RankStanding& now = outlook.rank(source);
  for (const Transfer& transfer : transfers_) {
    const Part& part = parts_[static_cast<std::size_t>(transfer.part)];
    if (part.left.cols > 0 && reach == Reach::kNear) continue;
    const Unit& unit = solution.unit(part.unit);
    const Unit joined = transfer.joined >= 0 ? solution.unit(transfer.joined) : Unit{};
    const int target = transfer.arriving.place;
    const RankStanding& there = outlook.rank(target);
    // Before anything comes back.
    RankShift at_source{source, memo_.cost_ms(part.source_slot) - now.compute_ms, now.forward_load,
                        now.backward_load};
    Change(at_source, LoadOf(unit), LoadOf(part.left));
    RankShift at_target{target, memo_.cost_ms(transfer.target_slot) - there.compute_ms,
                        there.forward_load, there.backward_load};
    Change(at_target, LoadOf(joined), LoadOf(transfer.arriving));
    const std::int64_t source_bytes = BytesOf(part.left) - BytesOf(unit);
    const std::int64_t target_bytes = BytesOf(transfer.arriving) - BytesOf(joined);
    const std::size_t t = static_cast<std::size_t>(transfer.target);
    for (std::size_t r = returns_end_[t]; r < returns_end_[t + 1]; ++r) {
      const Return& back = returns_[r];
      if (!back.whole() && back.cols != part.cols) continue;
      const Unit& returning = solution.unit(back.unit);
      if (returning.table == unit.table) continue;
      const Unit met = back.joined >= 0 ? solution.unit(back.joined) : Unit{};
      if (!solution.Fits(source, source_bytes + BytesOf(back.arriving) - BytesOf(met)) ||
          !solution.Fits(target, target_bytes + BytesOf(back.left) - BytesOf(returning))) {
        continue;
      }
      std::array shifts = {at_source, at_target};
      shifts[0].compute_ms += memo_.cost_ms(back.source_slot);
      Change(shifts[0], LoadOf(met), LoadOf(back.arriving));
      shifts[1].compute_ms += memo_.cost_ms(back.target_slot);
      Change(shifts[1], LoadOf(returning), LoadOf(back.left));
      const double estimate =
          outlook.Estimate(shifts, others_[t], pricer.response().coefficients(), list.limit_ms());
      if (!list.Wants(estimate)) continue;
      std::array<int, 4> leaving = {part.unit, back.unit};
      std::size_t left = 2;
      for (const int id : {transfer.joined, back.joined}) {
        if (id >= 0) leaving[left++] = id;
      }
      std::array<Unit, 4> coming = {transfer.arriving, back.arriving};
      std::size_t came = 2;
      for (const Unit& rest : {part.left, back.left}) {
        if (rest.cols > 0) coming[came++] = rest;
      }
      list.Add(estimate, std::span(leaving).first(left), std::span(coming).first(came));
    }
  }
}

// Where a shard on a target would go on to.
void RankNeighbours::FindOnward(const Solution& solution) {
  onward_.resize(returns_.size() * targets_.size());
  const auto look_up = [&](const auto& find) {
    for (std::size_t r = 0; r < returns_.size(); ++r) {
      if (!returns_[r].whole()) continue;
      const Unit& unit = solution.unit(returns_[r].unit);
      for (std::size_t t = 0; t < targets_.size(); ++t) {
        if (targets_[t] == unit.place) continue;
        find(onward_[r * targets_.size() + t], targets_[t], unit.shards.full);
      }
    }
  };
  look_up([&](ComputeMemo::Slot&, int rank, int with) { memo_.Expect(solution, rank, -1, with); });
  look_up([&](ComputeMemo::Slot& slot, int rank, int with) {
    slot = memo_.Find(solution, rank, -1, with);
  });
  memo_.EvaluateQueued();
}

void RankNeighbours::AddChains(const Solution& solution, const ExchangePricer& pricer, int source,
                               ExchangeList& list) {
  FindOnward(solution);
  const Outlook& outlook = pricer.outlook();
  const RankStanding& now = outlook.rank(source);
  const std::size_t targets = targets_.size();
  // Than the source, the rank between and the end.
  others_.clear();
  for (const int via : targets_) {
    for (const int end : targets_) {
      others_.push_back(outlook.OthersThan(std::array{source, via, end}));
    }
  }
  for (const Transfer& transfer : transfers_) {
    const Part& part = parts_[static_cast<std::size_t>(transfer.part)];
    if (part.left.cols > 0 || transfer.joined >= 0) continue;
    const Unit& unit = solution.unit(part.unit);
    const int via = transfer.arriving.place;
    const RankStanding& there = outlook.rank(via);
    const double via_more = memo_.cost_ms(transfer.target_slot) - there.compute_ms;
    const CommLoad load = LoadOf(unit);
    const std::int64_t bytes = BytesOf(unit);
    const std::size_t v = static_cast<std::size_t>(transfer.target);
    for (std::size_t r = returns_end_[v]; r < returns_end_[v + 1]; ++r) {
      const Unit& onward_unit = solution.unit(returns_[r].unit);
      if (!returns_[r].whole() || onward_unit.table == unit.table) continue;
      const std::int64_t onward_bytes = BytesOf(onward_unit);
      if (!solution.Fits(via, bytes - onward_bytes)) continue;
      const CommLoad onward_load = LoadOf(onward_unit);
      std::array shifts = {
          RankShift{source, memo_.cost_ms(part.source_slot), now.forward_load - load.forward,
                    now.backward_load - load.backward},
          RankShift{via, via_more + memo_.cost_ms(returns_[r].target_slot),
                    there.forward_load + load.forward - onward_load.forward,
                    there.backward_load + load.backward - onward_load.backward},
          RankShift{}};
      for (std::size_t t = 0; t < targets; ++t) {
        if (t == v || !solution.Fits(targets_[t], onward_bytes)) continue;
        const RankStanding& end = outlook.rank(targets_[t]);
        shifts[2] = {targets_[t], memo_.cost_ms(onward_[r * targets + t]),
                     end.forward_load + onward_load.forward,
                     end.backward_load + onward_load.backward};
        const double estimate = outlook.Estimate(shifts, others_[v * targets + t],
                                                 pricer.response().coefficients(), list.limit_ms());
        if (!list.Wants(estimate)) continue;
        Unit arriving = onward_unit;
        arriving.place = targets_[t];
        const std::array leaving = {part.unit, returns_[r].unit};
        const std::array coming = {transfer.arriving, arriving};
        list.Add(estimate, leaving, coming);
      }
    }
  }
}

}  // namespace neuroshard
