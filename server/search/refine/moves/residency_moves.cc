#include "server/search/refine/moves/residency_moves.h"

#include <algorithm>

#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Tables of the source that are promoted, the costliest there.
constexpr std::size_t kPromotedTables = 12;
// Units of the source that leave it, ranks that they go to, and units that come back for one.
constexpr std::size_t kUnits = 10;
constexpr std::size_t kPlacesOfMove = 4;
constexpr std::size_t kReturns = 8;

}  // namespace

ResidencyMoves::ResidencyMoves(MoveBench& bench)
    : MoveTools(bench), maker_(bench), placer_(bench) {}

void ResidencyMoves::Collect(int source, ResidencyNeighbourhood neighbourhood, double most_ms,
                             MoveList& list) {
  maker_.Reset(most_ms);
  pricer_.CostliestTables(
      source, kPromotedTables, [&](int table) { return maker_.IsFree(table); }, tables_);
  if (neighbourhood == ResidencyNeighbourhood::kPromotions) {
    TryPromotions(list);
    maker_.Begin();
    maker_.Promote(source);
    if (!maker_.added().empty()) Complete(list);
    return;
  }
  TryShiftsAndSwaps(source, list);
  TryHostBlocks(source, list);
}

template <typename Moved>
void ResidencyMoves::BeginWith(std::initializer_list<std::pair<int, int>> places,
                               const Moved& moved) {
  maker_.Begin();
  for (const auto& [id, place] : places) maker_.Remove(id);
  for (const auto& [id, place] : places) maker_.Add(moved(id, place));
}

void ResidencyMoves::Complete(MoveList& list) {
  if (!maker_.MakeRoom()) return;
  std::size_t shards = 0;
  for (const Unit& unit : maker_.added()) shards += static_cast<std::size_t>(unit.shards.count);
  context_.AddWork(Work::kEstimate, 4 * maker_.added().size() + shards);
  const double estimate_ms = pricer_.Estimate(maker_.removed(), maker_.added());
  if (list.Wants(estimate_ms)) list.Add(estimate_ms, maker_.removed(), maker_.added());
}

void ResidencyMoves::TryPromotions(MoveList& list) {
  for (const int table : tables_) {
    if (context_.ShouldStop()) return;
    const Unit& unit = solution_.unit(solution_.units_of_table(table).front());
    const std::vector<int>& residencies = *rules_.of(table).residencies;
    auto at = std::ranges::find(residencies, unit.residency);
    for (++at; at < residencies.end(); ++at) {
      if (!rules_.Allows(table, *at, unit.type)) continue;
      maker_.Begin();
      maker_.SetResidency(table, *at);
      Complete(list);
    }
  }
}

std::vector<ResidencyMoves::UnitShare> ResidencyMoves::Costliest(std::span<const int> ids, int rank,
                                                                 std::size_t most) const {
  std::vector<UnitShare> by_share;
  for (const int id : ids) {
    const Unit& unit = solution_.unit(id);
    if (unit.type == ShardingType::kTableColumnWise || solution_.fixed(unit.table) != nullptr) {
      continue;
    }
    by_share.push_back({pricer_.ShareOf(rank, unit.shards.full), id});
  }
  std::ranges::sort(by_share, [](const UnitShare& a, const UnitShare& b) {
    return a.share_ms != b.share_ms ? a.share_ms > b.share_ms : a.id < b.id;
  });
  if (by_share.size() > most) by_share.resize(most);
  return by_share;
}

void ResidencyMoves::TryShiftsAndSwaps(int source, MoveList& list) {
  const auto on = [&](int rank, std::size_t most) {
    return Costliest(solution_.units_on_rank(rank), rank, most);
  };
  std::vector<std::pair<double, int>> targets;
  for (int r = 0; r < solution_.num_ranks(); ++r) {
    if (r != source) targets.emplace_back(pricer_.objective().rank(r).total_ms(), r);
  }
  const std::size_t most = std::min(kPlacesOfMove, targets.size());
  std::partial_sort(targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(most),
                    targets.end());
  targets.resize(most);
  const auto holds = [&](int table, int rank) {
    for (const int id : solution_.units_of_table(table)) {
      if (solution_.unit(id).place == rank) return true;
    }
    return false;
  };
  const auto moved = [&](int id, int rank) {
    Unit unit = solution_.unit(id);
    unit.place = rank;
    return unit;
  };
  std::vector<std::vector<UnitShare>> returns;
  for (const auto& [total_ms, target] : targets) returns.push_back(on(target, kReturns));
  // Making room takes time: what would be too slow even if there were room is left out.
  const double cost_ms = pricer_.objective().cost_ms();
  const double source_ms = pricer_.objective().rank(source).total_ms();
  const auto share_ms = [&](int rank, int id) {
    return pricer_.ShareOf(rank, solution_.unit(id).shards.full);
  };
  for (const auto& [of_source_ms, id] : on(source, kUnits)) {
    const int table = solution_.unit(id).table;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      const auto [total_ms, target] = targets[t];
      if (context_.ShouldStop()) return;
      if (holds(table, target) || !rules_.of(table).ranks->contains(target)) continue;
      const double there_ms = total_ms + share_ms(target, id);
      if (there_ms < cost_ms) {
        BeginWith({{id, target}}, moved);
        if (maker_.Demote(target)) {
          maker_.Promote(source);
          Complete(list);
        }
      }
      for (const auto& [of_target_ms, back] : returns[t]) {
        const int other = solution_.unit(back).table;
        if (other == table || holds(other, source) || !rules_.of(other).ranks->contains(source) ||
            there_ms - of_target_ms >= cost_ms ||
            source_ms - of_source_ms + share_ms(source, back) >= cost_ms) {
          continue;
        }
        BeginWith({{id, target}, {back, source}}, moved);
        if (!maker_.Demote(target) || !maker_.Demote(source)) continue;
        maker_.Promote(source);
        maker_.Promote(target);
        Complete(list);
      }
    }
  }
}

void ResidencyMoves::TryHostBlocks(int source, MoveList& list) {
  const int host = solution_.host_of(source);
  const auto on = [&](int at) {
    return Costliest(solution_.units_on_host(at), solution_.host(at).first, kUnits);
  };
  const auto moved = [&](int id, int to) {
    return OnHost(solution_.unit(id), to, solution_, shard_table_);
  };
  const auto takes = [&](int table, int at) {
    const std::span<const int> hosts = rules_.of(table).ranks->whole_hosts();
    return std::ranges::find(hosts, at) != hosts.end();
  };
  const auto blocks = on(host);
  if (blocks.empty()) return;
  placer_.Reset();
  const double cost_ms = pricer_.objective().cost_ms();
  for (const int target : placer_.LowestHosts(kPlacesOfMove, host)) {
    const double target_ms = HostValueMs(solution_.host(target), placer_.total_ms());
    const auto returns = on(target);
    for (const auto& [share_ms, id] : blocks) {
      if (context_.ShouldStop()) return;
      const int table = solution_.unit(id).table;
      if (!takes(table, target)) continue;
      if (target_ms + share_ms < cost_ms) {
        BeginWith({{id, target}}, moved);
        Complete(list);
      }
      for (const auto& [back_ms, back] : returns) {
        const int other = solution_.unit(back).table;
        if (other == table || back_ms >= share_ms || target_ms + share_ms - back_ms >= cost_ms ||
            !takes(other, host)) {
          continue;
        }
        BeginWith({{id, target}, {back, host}}, moved);
        Complete(list);
      }
    }
  }
}

}  // namespace neuroshard
