#include "server/search/refine/moves/rank_moves.h"

#include <algorithm>
#include <array>

namespace neuroshard {
namespace {

// Moves that are found not to fit into device memory in the time of an estimate.
constexpr std::size_t kTriesAnEstimate = 16;

// A rank's loads, less `before` and plus `after`.
void ChangeLoads(RankChange& change, const CommLoad& before, const CommLoad& after) {
  change.forward_load += after.forward - before.forward;
  change.backward_load += after.backward - before.backward;
}

}  // namespace

RankMoves::RankMoves(SearchContext& context, const TableLayouts& layouts, ShardTable& shard_table,
                     RankCosts& rank_costs)
    : context_(context),
      shard_table_(shard_table),
      rank_costs_(rank_costs),
      transfers_(layouts, shard_table, rank_costs) {}

void RankMoves::Collect(const Solution& solution, const MovePricer& pricer, int source,
                        MoveList& list) {
  rank_costs_.TrimIfLarge();
  transfers_.List(solution, pricer.objective(), source);
  context_.AddWork(Work::kEstimate, transfers_.transfers().size());
  AddShifts(solution, pricer, source, list);
  AddSwaps(solution, pricer, source, list);
}

void RankMoves::AddShifts(const Solution& solution, const MovePricer& pricer, int source,
                          MoveList& list) {
  const Objective& objective = pricer.objective();
  const RankPrice& now = objective.rank(source);
  others_.clear();
  for (const int target : transfers_.targets())
    others_.push_back(objective.OthersThan(std::array{source, target}));
  for (const RankTransfers::Transfer& transfer : transfers_.transfers()) {
    const RankTransfers::Departure& departure = DepartureOf(transfer);
    const Unit& unit = solution.unit(departure.unit);
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
    const CommLoad left = LoadOf(departure.rest);
    const CommLoad arriving = LoadOf(transfer.arriving);
    const RankPrice& there = objective.rank(target);
    const std::array changes = {
        RankChange{source, rank_costs_.cost_ms(source, departure.source_slot),
                   now.forward_load + left.forward - before.forward,
                   now.backward_load + left.backward - before.backward},
        RankChange{target, rank_costs_.cost_ms(target, transfer.target_slot),
                   there.forward_load + arriving.forward - replaced.forward,
                   there.backward_load + arriving.backward - replaced.backward}};
    const double estimate =
        objective.Estimate(changes, others_[static_cast<std::size_t>(transfer.target)],
                           pricer.surrogate(), list.limit_ms());
    if (!list.Wants(estimate)) continue;
    const std::array removed = {departure.unit, transfer.joined};
    const std::array added = {transfer.arriving, departure.rest};
    list.Add(estimate, std::span(removed).first(transfer.joined >= 0 ? 2 : 1),
             std::span(added).first(departure.rest.cols > 0 ? 2 : 1));
  }
}

void RankMoves::CountWork(const Solution& solution, std::size_t tried, std::size_t estimated) {
  const bool is_scarce = solution.rules().has_off_device();
  context_.AddWork(Work::kEstimate, is_scarce ? estimated + tried / kTriesAnEstimate : tried);
}

// Costs of two changes of one rank together are taken to add up.
void RankMoves::AddSwaps(const Solution& solution, const MovePricer& pricer, int source,
                         MoveList& list) {
  const Objective& objective = pricer.objective();
  const RankPrice& now = objective.rank(source);
  return_bytes_.clear();
  for (const RankTransfers::Return& back : transfers_.returns()) {
    const std::int64_t met = back.joined >= 0 ? BytesOf(solution.unit(back.joined)) : 0;
    return_bytes_.push_back({BytesOf(back.arriving) - met, -BytesOf(solution.unit(back.unit))});
  }
  for (const RankTransfers::Transfer& transfer : transfers_.transfers()) {
    const RankTransfers::Departure& departure = DepartureOf(transfer);
    if (departure.rest.cols > 0) continue;
    const Unit& unit = solution.unit(departure.unit);
    const Unit joined = transfer.joined >= 0 ? solution.unit(transfer.joined) : Unit{};
    const int target = transfer.arriving.place;
    const RankPrice& there = objective.rank(target);
    // Before anything comes back.
    RankChange at_source{source,
                         rank_costs_.cost_ms(source, departure.source_slot) - now.compute_ms,
                         now.forward_load, now.backward_load};
    ChangeLoads(at_source, LoadOf(unit), {});
    RankChange at_target{target,
                         rank_costs_.cost_ms(target, transfer.target_slot) - there.compute_ms,
                         there.forward_load, there.backward_load};
    ChangeLoads(at_target, LoadOf(joined), LoadOf(transfer.arriving));
    const std::int64_t source_room = solution.LeftBytes(source) + BytesOf(unit);
    const std::int64_t target_room =
        solution.LeftBytes(target) + BytesOf(joined) - BytesOf(transfer.arriving);
    const std::size_t t = static_cast<std::size_t>(transfer.target);
    std::size_t estimated = 0;
    for (std::size_t r = transfers_.returns_begin(t); r < transfers_.returns_begin(t + 1); ++r) {
      if (return_bytes_[r].source > source_room || return_bytes_[r].target > target_room) continue;
      const RankTransfers::Return& back = transfers_.returns()[r];
      const Unit& returning = solution.unit(back.unit);
      if (returning.table == unit.table) continue;
      const Unit met = back.joined >= 0 ? solution.unit(back.joined) : Unit{};
      ++estimated;
      std::array changes = {at_source, at_target};
      changes[0].compute_ms += rank_costs_.cost_ms(source, back.source_slot);
      ChangeLoads(changes[0], LoadOf(met), LoadOf(back.arriving));
      changes[1].compute_ms += rank_costs_.cost_ms(target, back.target_slot);
      ChangeLoads(changes[1], LoadOf(returning), {});
      const double estimate =
          objective.Estimate(changes, others_[t], pricer.surrogate(), list.limit_ms());
      if (!list.Wants(estimate)) continue;
      std::array<int, 4> removed = {departure.unit, back.unit};
      std::size_t num_removed = 2;
      for (const int id : {transfer.joined, back.joined}) {
        if (id >= 0) removed[num_removed++] = id;
      }
      const std::array added = {transfer.arriving, back.arriving};
      list.Add(estimate, std::span(removed).first(num_removed), added);
    }
    CountWork(solution, transfers_.returns_begin(t + 1) - transfers_.returns_begin(t), estimated);
  }
}

}  // namespace neuroshard
