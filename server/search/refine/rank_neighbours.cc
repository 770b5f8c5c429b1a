#include "server/search/refine/rank_neighbours.h"

#include <algorithm>
#include <array>

namespace neuroshard {
namespace {

// What a rank exchanges, less `before` and plus `after`.
void Change(RankShift& shift, const CommLoad& before, const CommLoad& after) {
  shift.forward_load += after.forward - before.forward;
  shift.backward_load += after.backward - before.backward;
}

}  // namespace

RankNeighbours::RankNeighbours(SearchContext& context, const TableLayouts& layouts, ShardBook& book,
                               ComputeMemo& memo)
    : context_(context), layouts_(layouts), book_(book), memo_(memo) {}

void RankNeighbours::Collect(const Solution& solution, const ExchangePricer& pricer, int source,
                             Reach reach, ExchangeList& list) {
  memo_.TrimIfLarge();
  ChooseTargets(solution, pricer.outlook(), source);
  ListParts(solution, source);
  ListTransfers(solution);
  ListReturns(solution, source, reach);
  book_.PredictNew();
  FindSlots(solution, source);
  context_.AddWork(Work::kEstimate, transfers_.size());
  AddTransfers(solution, pricer, source, list);
  AddSwaps(solution, pricer, source, reach, list);
  if (reach == Reach::kFar) AddChains(solution, pricer, source, list);
}

void RankNeighbours::FindSlots(const Solution& solution, int source) {
  const auto find = [&](int rank, int without, int with) {
    return memo_.Find(solution, rank, without, with);
  };
  for (Part& part : parts_) {
    const int before = solution.unit(part.unit).shards.full;
    part.source_slot = find(source, before, part.left.cols > 0 ? part.left.shards.full : -1);
  }
  for (Transfer& transfer : transfers_) {
    const int before = transfer.joined >= 0 ? solution.unit(transfer.joined).shards.full : -1;
    transfer.target_slot = find(transfer.arriving.place, before, transfer.arriving.shards.full);
  }
  for (Return& back : returns_) {
    const Unit& unit = solution.unit(back.unit);
    back.target_slot =
        find(unit.place, unit.shards.full, back.whole() ? -1 : back.left.shards.full);
    back.source_slot = find(source, back.joined >= 0 ? solution.unit(back.joined).shards.full : -1,
                            back.arriving.shards.full);
  }
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
                         pricer.surrogate(), list.limit_ms());
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
    context_.AddWork(Work::kEstimate, returns_end_[t + 1] - returns_end_[t]);
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
          outlook.Estimate(shifts, others_[t], pricer.surrogate(), list.limit_ms());
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
  for (std::size_t r = 0; r < returns_.size(); ++r) {
    if (!returns_[r].whole()) continue;
    const Unit& unit = solution.unit(returns_[r].unit);
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      if (targets_[t] == unit.place) continue;
      onward_[r * targets_.size() + t] = memo_.Find(solution, targets_[t], -1, unit.shards.full);
    }
  }
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
    context_.AddWork(Work::kEstimate, (returns_end_[v + 1] - returns_end_[v]) * targets);
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
        const double estimate =
            outlook.Estimate(shifts, others_[v * targets + t], pricer.surrogate(), list.limit_ms());
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
