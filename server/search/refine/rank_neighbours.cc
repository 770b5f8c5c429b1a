#include "server/search/refine/rank_neighbours.h"

#include <algorithm>
#include <array>

namespace neuroshard {
namespace {

// Ranks that something may go to: the lowest ones, half of them by time and half by load.
constexpr std::size_t kTargets = 16;
// Different numbers of columns of a shard that are tried.
constexpr std::int64_t kWidths = 8;

// The columns that may leave a shard of `cols`: all, or a multiple of the alignment.
void WidthsOf(std::int64_t cols, std::vector<std::int64_t>& widths) {
  widths.clear();
  const std::int64_t granules = (cols - 1) / kColumnAlignment;  // at most so many leave something
  if (granules <= kWidths) {
    for (std::int64_t g = 1; g <= granules; ++g) widths.push_back(g * kColumnAlignment);
  } else {
    for (std::int64_t i = 1; i <= kWidths; ++i) {
      const std::int64_t g = i <= 2 ? i : 2 + (granules - 2) * (i - 2) / (kWidths - 2);
      widths.push_back(g * kColumnAlignment);
    }
  }
  widths.push_back(cols);
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
  ListResidents(solution);
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
  std::vector<std::int64_t> widths;
  for (const int id : solution.units_on_rank(source)) {
    const Unit& unit = solution.unit(id);
    const int pieces = static_cast<int>(solution.units_of_table(unit.table).size());
    WidthsOf(unit.cols, widths);
    for (const std::int64_t cols : widths) {
      Part part{.unit = id, .cols = cols, .left = unit};
      part.left.cols = unit.cols - cols;
      if (part.left.cols > 0) {
        // With joined columns there are as many pieces as before, otherwise one more.
        if (!layouts_.CutsAnywhere(unit.table) ||
            !layouts_.AllowsWidth(unit.table, part.left.cols)) {
          continue;
        }
        const auto type = layouts_.OnRanks(unit.table, std::max(2, pieces));
        if (!type) continue;
        part.left.type = *type;
        part.left.shards = book_.Shards(unit.table, *type, part.left.cols, 1);
      }
      parts_.push_back(part);
    }
  }
}

void RankNeighbours::ListTransfers(const Solution& solution) {
  transfers_.clear();
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    const Unit& unit = solution.unit(part.unit);
    const std::span<const int> pieces = solution.units_of_table(unit.table);
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      Transfer transfer;
      transfer.part = static_cast<int>(p);
      transfer.target = static_cast<int>(t);
      for (const int piece : pieces) {
        if (solution.unit(piece).place == targets_[t]) transfer.joined = piece;
      }
      if (transfer.joined >= 0 && !layouts_.CutsAnywhere(unit.table)) continue;
      int count = static_cast<int>(pieces.size());
      if (part.left.cols > 0) ++count;
      if (transfer.joined >= 0) --count;
      const auto type = layouts_.OnRanks(unit.table, count);
      if (!type) continue;
      transfer.arriving = unit;
      transfer.arriving.type = *type;
      transfer.arriving.place = targets_[t];
      transfer.arriving.cols = part.cols;
      if (transfer.joined >= 0) transfer.arriving.cols += solution.unit(transfer.joined).cols;
      if (!layouts_.AllowsWidth(unit.table, transfer.arriving.cols)) continue;
      transfer.arriving.shards = book_.Shards(unit.table, *type, transfer.arriving.cols, 1);
      transfers_.push_back(transfer);
    }
  }
}

void RankNeighbours::ListResidents(const Solution& solution) {
  residents_.clear();
  residents_end_.assign(1, 0);
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    for (const int id : solution.units_on_rank(targets_[t])) {
      residents_.push_back({.unit = id, .target = static_cast<int>(t)});
    }
    residents_end_.push_back(residents_.size());
  }
}

void RankNeighbours::FindSlots(const Solution& solution, int source) {
  for (Part& part : parts_) {
    const int before = solution.unit(part.unit).shards.full;
    part.source_slot =
        memo_.Find(solution, source, before, part.left.cols > 0 ? part.left.shards.full : -1);
  }
  for (Transfer& transfer : transfers_) {
    const int before = transfer.joined >= 0 ? solution.unit(transfer.joined).shards.full : -1;
    transfer.target_slot =
        memo_.Find(solution, transfer.arriving.place, before, transfer.arriving.shards.full);
  }
  for (Resident& resident : residents_) {
    const Unit& unit = solution.unit(resident.unit);
    resident.without_slot = memo_.Find(solution, unit.place, unit.shards.full, -1);
    resident.on_source_slot = memo_.Find(solution, source, -1, unit.shards.full);
  }
  memo_.EvaluateQueued();
}

void RankNeighbours::AddTransfers(const Solution& solution, const ExchangePricer& pricer,
                                  int source, ExchangeList& list) {
  const Outlook& outlook = pricer.outlook();
  const RankStanding& now = outlook.rank(source);
  for (const Transfer& transfer : transfers_) {
    const Part& part = parts_[static_cast<std::size_t>(transfer.part)];
    const Unit& unit = solution.unit(part.unit);
    const int target = transfer.arriving.place;
    const Unit joined = transfer.joined >= 0 ? solution.unit(transfer.joined) : Unit{};
    if (!solution.Fits(target, BytesOf(transfer.arriving) - BytesOf(joined))) continue;
    const CommLoad before = LoadOf(unit);
    const CommLoad left = LoadOf(part.left);
    const CommLoad arriving = LoadOf(transfer.arriving);
    const CommLoad replaced = LoadOf(joined);
    const RankStanding& there = outlook.rank(target);
    const std::array shifts = {
        RankShift{source, memo_.cost_ms(part.source_slot),
                  now.forward_load + left.forward - before.forward,
                  now.backward_load + left.backward - before.backward},
        RankShift{target, memo_.cost_ms(transfer.target_slot),
                  there.forward_load + arriving.forward - replaced.forward,
                  there.backward_load + arriving.backward - replaced.backward}};
    const double estimate = outlook.Estimate(shifts, pricer.response().coefficients());
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
    if (transfer.joined >= 0) continue;
    const Unit& unit = solution.unit(part.unit);
    const int target = transfer.arriving.place;
    const RankStanding& there = outlook.rank(target);
    const double source_less = memo_.cost_ms(part.source_slot) - now.compute_ms;
    const double target_more = memo_.cost_ms(transfer.target_slot) - there.compute_ms;
    const CommLoad before = LoadOf(unit);
    const CommLoad left = LoadOf(part.left);
    const CommLoad arriving = LoadOf(transfer.arriving);
    const std::int64_t source_bytes = BytesOf(part.left) - BytesOf(unit);
    const std::int64_t target_bytes = BytesOf(transfer.arriving);
    const std::size_t t = static_cast<std::size_t>(transfer.target);
    for (std::size_t r = residents_end_[t]; r < residents_end_[t + 1]; ++r) {
      const Resident& resident = residents_[r];
      const Unit& back = solution.unit(resident.unit);
      if (back.table == unit.table) continue;
      const std::int64_t back_bytes = BytesOf(back);
      if (!solution.Fits(source, source_bytes + back_bytes) ||
          !solution.Fits(target, target_bytes - back_bytes)) {
        continue;
      }
      const CommLoad back_load = LoadOf(back);
      const std::array shifts = {
          RankShift{source, source_less + memo_.cost_ms(resident.on_source_slot),
                    now.forward_load + left.forward - before.forward + back_load.forward,
                    now.backward_load + left.backward - before.backward + back_load.backward},
          RankShift{target, target_more + memo_.cost_ms(resident.without_slot),
                    there.forward_load + arriving.forward - back_load.forward,
                    there.backward_load + arriving.backward - back_load.backward}};
      const double estimate = outlook.Estimate(shifts, pricer.response().coefficients());
      if (!list.Wants(estimate)) continue;
      Unit moved = back;
      moved.place = source;
      const std::array leaving = {part.unit, resident.unit};
      const std::array coming = {transfer.arriving, moved, part.left};
      list.Add(estimate, leaving, std::span(coming).first(part.left.cols > 0 ? 3 : 2));
    }
  }
}

void RankNeighbours::AddChains(const Solution& solution, const ExchangePricer& pricer, int source,
                               ExchangeList& list) {
  const Outlook& outlook = pricer.outlook();
  const RankStanding& now = outlook.rank(source);
  // Where a resident would go on to, by resident and target.
  std::vector<ComputeMemo::Slot> onward(residents_.size() * targets_.size());
  for (std::size_t r = 0; r < residents_.size(); ++r) {
    const Unit& unit = solution.unit(residents_[r].unit);
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      if (targets_[t] == unit.place) continue;
      onward[r * targets_.size() + t] = memo_.Find(solution, targets_[t], -1, unit.shards.full);
    }
  }
  memo_.EvaluateQueued();
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
    for (std::size_t r = residents_end_[v]; r < residents_end_[v + 1]; ++r) {
      const Unit& onward_unit = solution.unit(residents_[r].unit);
      if (onward_unit.table == unit.table) continue;
      const std::int64_t onward_bytes = BytesOf(onward_unit);
      if (!solution.Fits(via, bytes - onward_bytes)) continue;
      const CommLoad onward_load = LoadOf(onward_unit);
      for (std::size_t t = 0; t < targets_.size(); ++t) {
        if (t == v || !solution.Fits(targets_[t], onward_bytes)) continue;
        const RankStanding& end = outlook.rank(targets_[t]);
        const std::array shifts = {
            RankShift{source, memo_.cost_ms(part.source_slot), now.forward_load - load.forward,
                      now.backward_load - load.backward},
            RankShift{via, via_more + memo_.cost_ms(residents_[r].without_slot),
                      there.forward_load + load.forward - onward_load.forward,
                      there.backward_load + load.backward - onward_load.backward},
            RankShift{targets_[t], memo_.cost_ms(onward[r * targets_.size() + t]),
                      end.forward_load + onward_load.forward,
                      end.backward_load + onward_load.backward}};
        const double estimate = outlook.Estimate(shifts, pricer.response().coefficients());
        if (!list.Wants(estimate)) continue;
        Unit arriving = onward_unit;
        arriving.place = targets_[t];
        const std::array leaving = {part.unit, residents_[r].unit};
        const std::array coming = {transfer.arriving, arriving};
        list.Add(estimate, leaving, coming);
      }
    }
  }
}

}  // namespace neuroshard
