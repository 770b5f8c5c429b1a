#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/search/refine/moves/neighbourhood.h"
#include "server/search/refine/objective/objective.h"

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

// Moves that are found not to fit into device memory in the time of an estimate.
constexpr std::size_t kTriesAnEstimate = 16;

// A rank's loads, less `before` and plus `after`.
void ChangeLoads(RankChange& change, const CommLoad& before, const CommLoad& after) {
  change.forward_load += after.forward - before.forward;
  change.backward_load += after.backward - before.backward;
}

class RankMoves final : public Neighbourhood {
 public:
  explicit RankMoves(Workbench& bench)
      : Neighbourhood(bench), objective_(bench.pricer.objective()) {}

  void Collect(int source, double /*max_ms*/, MoveList& list) override {
    pricer_.TrimCosts();
    ChooseTargets(source);
    ListDepartures(source);
    ListTransfers();
    ListReturns(source);
    shard_table_.PredictNew();
    FindSlots(source);
    context_.AddWork(Work::kEstimate, transfers_.size());
    AddShifts(source, list);
    AddSwaps(source, list);
  }

 private:
  using Slot = MovePricer::Slot;

  // Some or all columns of a unit on the source that may leave it.
  struct Departure {
    int unit = 0;
    std::int64_t cols = 0;
    Unit rest;  // what stays; cols 0: nothing
    // What arrives on a target without shards of the table, and its type on a target with some.
    // None: rules forbid it.
    std::optional<Unit> arriving = std::nullopt;
    std::optional<ShardingType> joined_type = std::nullopt;
    Slot source_slot = 0;  // the source without it
  };
  // A departure to a target, joining what the target has of the table.
  struct Transfer {
    int departure = 0;
    int target = 0;        // index into targets_
    int joined = -1;       // unit
    Unit arriving;         // as it will be there
    Slot target_slot = 0;  // the target with it
  };
  // A unit on a target that comes to the source, joining what it has of the table.
  struct Return {
    int unit = 0;
    int joined = -1;       // unit on the source
    Unit arriving = {};    // as it will be on the source
    Slot target_slot = 0;  // the target without it
    Slot source_slot = 0;  // the source with it
  };

  void ChooseTargets(int source) {
    targets_.clear();
    for (int r = 0; r < solution_.num_ranks(); ++r) {
      if (r != source) targets_.push_back(r);
    }
    if (targets_.size() <= kTargets) return;
    constexpr std::size_t kByTime = kTargets * 3 / 4;
    objective_.BringLargest(targets_, kByTime, [](const RankPrice& r) { return -r.ready_ms(); });
    objective_.BringLargest(std::span(targets_).subspan(kByTime), kTargets - kByTime,
                            [](const RankPrice& r) { return -r.forward_load; });
    targets_.resize(kTargets);
  }

  void ListDepartures(int source) {
    departures_.clear();
    for (const int id : solution_.units_on_rank(source)) {
      const Unit& unit = solution_.unit(id);
      const int blocks = static_cast<int>(solution_.units_of_table(unit.table).size());
      const bool cuts = layouts_.CutsAnywhere(unit.table);
      // With joined columns there are as many blocks as before, otherwise one more.
      const auto same = layouts_.OnRanks(unit.table, blocks);
      const auto more = layouts_.OnRanks(unit.table, blocks + 1);
      const auto fewer =
          cuts && blocks > 1 ? layouts_.OnRanks(unit.table, blocks - 1) : std::nullopt;
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

  // Fills joined_.
  void FindJoined(const Unit& unit) {
    joined_.assign(targets_.size(), -1);
    for (const int id : solution_.units_of_table(unit.table)) {
      const int target = At(target_of_rank_, solution_.unit(id).place);
      if (target >= 0) At(joined_, target) = id;
    }
  }

  void ListTransfers() {
    transfers_.clear();
    target_of_rank_.assign(static_cast<std::size_t>(solution_.num_ranks()), -1);
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      At(target_of_rank_, targets_[t]) = static_cast<int>(t);
    }
    int listed = -1;
    for (std::size_t d = 0; d < departures_.size(); ++d) {
      const Departure& departure = departures_[d];
      const Unit& unit = solution_.unit(departure.unit);
      if (departure.unit != listed) FindJoined(unit);
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
          transfer.arriving.cols = departure.cols + solution_.unit(transfer.joined).cols;
          if (!layouts_.AllowsWidth(unit.table, transfer.arriving.cols)) continue;
          transfer.arriving.shards = shard_table_.Shards(unit.table, *departure.joined_type,
                                                         transfer.arriving.cols, 1, unit.residency);
        }
        transfer.arriving.place = targets_[t];
        transfers_.push_back(transfer);
      }
    }
  }

  void ListReturns(int source) {
    returns_.clear();
    returns_begin_.assign(1, 0);
    for (const int target : targets_) {
      for (const int id : solution_.units_on_rank(target)) {
        const Unit& unit = solution_.unit(id);
        const std::span<const int> siblings = solution_.units_of_table(unit.table);
        Return back{.unit = id, .arriving = unit};
        for (const int sibling : siblings) {
          if (solution_.unit(sibling).place == source) back.joined = sibling;
        }
        int blocks = static_cast<int>(siblings.size());
        if (back.joined >= 0) {
          if (!layouts_.CutsAnywhere(unit.table)) continue;
          back.arriving.cols += solution_.unit(back.joined).cols;
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

  // The costs of all slots are known then.
  void FindSlots(int source) {
    for (Departure& departure : departures_) {
      const int before = solution_.unit(departure.unit).shards.full;
      departure.source_slot = pricer_.FindCost(
          source, before, departure.rest.cols > 0 ? departure.rest.shards.full : -1);
    }
    for (Transfer& transfer : transfers_) {
      const int before = transfer.joined >= 0 ? solution_.unit(transfer.joined).shards.full : -1;
      transfer.target_slot =
          pricer_.FindCost(transfer.arriving.place, before, transfer.arriving.shards.full);
    }
    for (Return& back : returns_) {
      const Unit& unit = solution_.unit(back.unit);
      back.target_slot = pricer_.FindCost(unit.place, unit.shards.full, -1);
      back.source_slot =
          pricer_.FindCost(source, back.joined >= 0 ? solution_.unit(back.joined).shards.full : -1,
                           back.arriving.shards.full);
    }
    pricer_.PredictCosts();
  }

  // A rank with the compute of a slot, and with shards of other loads in place of those before.
  RankChange Changed(int rank, Slot slot, const CommLoad& before = {},
                     const CommLoad& after = {}) const {
    const RankPrice& now = objective_.rank(rank);
    return {rank, pricer_.compute_ms(rank, slot), now.forward_load + after.forward - before.forward,
            now.backward_load + after.backward - before.backward};
  }

  void AddShifts(int source, MoveList& list) {
    unchanged_.clear();
    for (const int target : targets_) {
      unchanged_.push_back(objective_.LargestExcept(std::array{source, target}));
    }
    for (const Transfer& transfer : transfers_) {
      const Departure& departure = DepartureOf(transfer);
      const std::int64_t more_bytes = BytesOf(transfer.arriving) - BytesOf(JoinedBy(transfer));
      if (!solution_.Fits(transfer.arriving.place, more_bytes)) continue;
      const std::array changes = {
          Changed(source, departure.source_slot, LoadOf(solution_.unit(departure.unit)),
                  LoadOf(departure.rest)),
          Changed(transfer.arriving.place, transfer.target_slot, LoadOf(JoinedBy(transfer)),
                  LoadOf(transfer.arriving))};
      const double estimate = objective_.Estimate(changes, At(unchanged_, transfer.target),
                                                  pricer_.surrogate(), list.limit_ms());
      if (!list.Wants(estimate)) continue;
      const std::array removed = {departure.unit, transfer.joined};
      const std::array added = {transfer.arriving, departure.rest};
      list.Add(estimate, std::span(removed).first(transfer.joined >= 0 ? 2 : 1),
               std::span(added).first(departure.rest.cols > 0 ? 2 : 1));
    }
  }

  // Counts moves that were tried, some of which had room in memory and were estimated. With host
  // memory most have none; otherwise nearly all have, and all count.
  void CountWork(std::size_t tried, std::size_t estimated) {
    const bool is_scarce = rules_.has_off_device();
    context_.AddWork(Work::kEstimate, is_scarce ? estimated + tried / kTriesAnEstimate : tried);
  }

  // Costs of two changes of one rank together are taken to add up.
  void AddSwaps(int source, MoveList& list) {
    return_bytes_.clear();
    for (const Return& back : returns_) {
      return_bytes_.push_back(
          {BytesOf(back.arriving) - BytesOf(JoinedBy(back)), -BytesOf(solution_.unit(back.unit))});
    }
    for (const Transfer& transfer : transfers_) {
      const Departure& departure = DepartureOf(transfer);
      if (departure.rest.cols > 0) continue;
      const Unit& unit = solution_.unit(departure.unit);
      const Unit joined = JoinedBy(transfer);
      const int target = transfer.arriving.place;
      // Before anything comes back, but for what the ranks compute now.
      std::array<RankChange, 2> before = {Changed(source, departure.source_slot),
                                          Changed(target, transfer.target_slot)};
      for (RankChange& change : before)
        change.compute_ms -= objective_.rank(change.rank).compute_ms;
      ChangeLoads(before[0], LoadOf(unit), {});
      ChangeLoads(before[1], LoadOf(joined), LoadOf(transfer.arriving));
      const std::int64_t source_room = solution_.LeftBytes(source) + BytesOf(unit);
      const std::int64_t target_room =
          solution_.LeftBytes(target) + BytesOf(joined) - BytesOf(transfer.arriving);
      const std::size_t t = static_cast<std::size_t>(transfer.target);
      std::size_t estimated = 0;
      for (std::size_t r = returns_begin_[t]; r < returns_begin_[t + 1]; ++r) {
        if (return_bytes_[r].source > source_room || return_bytes_[r].target > target_room)
          continue;
        const Return& back = returns_[r];
        const Unit& returning = solution_.unit(back.unit);
        if (returning.table == unit.table) continue;
        const Unit met = JoinedBy(back);
        ++estimated;
        std::array<RankChange, 2> changes = before;
        changes[0].compute_ms += pricer_.compute_ms(source, back.source_slot);
        ChangeLoads(changes[0], LoadOf(met), LoadOf(back.arriving));
        changes[1].compute_ms += pricer_.compute_ms(target, back.target_slot);
        ChangeLoads(changes[1], LoadOf(returning), {});
        const double estimate =
            objective_.Estimate(changes, unchanged_[t], pricer_.surrogate(), list.limit_ms());
        if (!list.Wants(estimate)) continue;
        std::array<int, 4> removed = {departure.unit, back.unit};
        std::size_t num_removed = 2;
        for (const int id : {transfer.joined, back.joined}) {
          if (id >= 0) removed[num_removed++] = id;
        }
        const std::array added = {transfer.arriving, back.arriving};
        list.Add(estimate, std::span(removed).first(num_removed), added);
      }
      CountWork(returns_begin_[t + 1] - returns_begin_[t], estimated);
    }
  }

  // What a transfer or a return joins; without columns where that is nothing.
  template <typename Arrival>
  Unit JoinedBy(const Arrival& arrival) const {
    return arrival.joined >= 0 ? solution_.unit(arrival.joined) : Unit{};
  }
  const Departure& DepartureOf(const Transfer& transfer) const {
    return At(departures_, transfer.departure);
  }
  std::int64_t BytesOf(const Unit& unit) const {
    return unit.cols == 0 ? 0 : shard_table_.bytes(unit.shards.full);
  }
  CommLoad LoadOf(const Unit& unit) const {
    return unit.cols == 0 ? CommLoad{} : shard_table_.load(unit.shards.full);
  }

  const Objective& objective_;

  // Scratch of Collect, kept for its memory.
  std::vector<int> targets_;  // ranks that something may go to
  std::vector<Departure> departures_;
  std::vector<Transfer> transfers_;
  std::vector<Return> returns_;
  std::vector<std::size_t> returns_begin_;           // by target, one more
  std::vector<int> target_of_rank_;                  // -1: none
  std::vector<int> joined_;                          // by target: the unit of a table there, or -1
  std::vector<Objective::LargestValues> unchanged_;  // by target: all ranks but it and the source
  struct MoreBytes {
    std::int64_t source = 0;
    std::int64_t target = 0;
  };
  std::vector<MoreBytes> return_bytes_;  // by return: that the two ranks hold then
};

}  // namespace

std::unique_ptr<Neighbourhood> MakeRankMoves(Workbench& bench) {
  return std::make_unique<RankMoves>(bench);
}

}  // namespace neuroshard
