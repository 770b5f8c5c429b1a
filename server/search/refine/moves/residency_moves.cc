#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "server/search/refine/moves/neighbourhood.h"
#include "server/search/refine/moves/room_maker.h"
#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Tables of the source that are promoted, the costliest there.
constexpr std::size_t kPromotedTables = 12;
// Units of the source that leave it, ranks that they go to, and units that come back for one.
constexpr std::size_t kUnits = 10;
constexpr std::size_t kPlacesOfMove = 4;
constexpr std::size_t kReturns = 8;

// Moves that a RoomMaker completes.
class ResidencyMoves : public Neighbourhood {
 protected:
  explicit ResidencyMoves(MoveBench& bench) : Neighbourhood(bench), maker_(bench) {}

  // Completes the move and proposes it, if it can be.
  void Complete(MoveList& list) {
    if (!maker_.MakeRoom()) return;
    context_.AddWork(Work::kEstimate, 4 * maker_.added().size() + CountShards(maker_.added()));
    Propose(maker_.removed(), maker_.added(), list);
  }

  RoomMaker maker_;
};

// Tables get other residencies.
class PromotionMoves final : public ResidencyMoves {
 public:
  explicit PromotionMoves(MoveBench& bench) : ResidencyMoves(bench) {}

  void Collect(int source, double max_ms, MoveList& list) override {
    maker_.Reset(max_ms);
    pricer_.CostliestTables(
        source, kPromotedTables, [&](int table) { return maker_.IsFree(table); }, tables_);
    for (const int table : tables_) {
      if (context_.ShouldStop()) break;
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
    maker_.Begin();
    maker_.Promote(source);
    if (!maker_.added().empty()) Complete(list);
  }

 private:
  std::vector<int> tables_;  // of the source, costliest first
};

// Units change ranks or hosts, or swap.
class ExchangeMoves final : public ResidencyMoves {
 public:
  explicit ExchangeMoves(MoveBench& bench) : ResidencyMoves(bench) {}

  void Collect(int source, double max_ms, MoveList& list) override {
    maker_.Reset(max_ms);
    TryShiftsAndSwaps(source, list);
    TryHostBlocks(source, list);
  }

 private:
  // A unit, and what it adds to the time of a rank.
  struct UnitShare {
    double share_ms = 0;
    int id = 0;
  };

  // Begins with units going to other places.
  void BeginWith(std::initializer_list<std::pair<int, int>> places) {
    maker_.Begin();
    for (const auto& [id, place] : places) maker_.Remove(id);
    for (const auto& [id, place] : places) {
      maker_.Add(MovedTo(place, solution_.unit(id), solution_, shard_table_));
    }
  }

  // The units that may change places and cost the rank most.
  std::vector<UnitShare> Costliest(std::span<const int> ids, int rank, std::size_t most) const {
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

  void TryShiftsAndSwaps(int source, MoveList& list) {
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
          BeginWith({{id, target}});
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
          BeginWith({{id, target}, {back, source}});
          if (!maker_.Demote(target) || !maker_.Demote(source)) continue;
          maker_.Promote(source);
          maker_.Promote(target);
          Complete(list);
        }
      }
    }
  }

  // Blocks of a host go to another one, or swap with one there.
  void TryHostBlocks(int source, MoveList& list) {
    const int host = solution_.host_of(source);
    const auto on = [&](int at) {
      return Costliest(solution_.units_on_host(at), solution_.host(at).first, kUnits);
    };
    const auto takes = [&](int table, int at) {
      const std::span<const int> hosts = rules_.of(table).ranks->whole_hosts();
      return std::ranges::find(hosts, at) != hosts.end();
    };
    const auto blocks = on(host);
    if (blocks.empty()) return;
    const std::vector<double> total_ms = pricer_.objective().TotalsMs();
    const double cost_ms = pricer_.objective().cost_ms();
    for (const int target : LowestHosts(rules_.hosts(), total_ms, kPlacesOfMove, host)) {
      const double target_ms = HostValueMs(solution_.host(target), total_ms);
      const auto returns = on(target);
      for (const auto& [share_ms, id] : blocks) {
        if (context_.ShouldStop()) return;
        const int table = solution_.unit(id).table;
        if (!takes(table, target)) continue;
        if (target_ms + share_ms < cost_ms) {
          BeginWith({{id, target}});
          Complete(list);
        }
        for (const auto& [back_ms, back] : returns) {
          const int other = solution_.unit(back).table;
          if (other == table || back_ms >= share_ms || target_ms + share_ms - back_ms >= cost_ms ||
              !takes(other, host)) {
            continue;
          }
          BeginWith({{id, target}, {back, host}});
          Complete(list);
        }
      }
    }
  }
};

}  // namespace

std::unique_ptr<Neighbourhood> MakePromotionMoves(MoveBench& bench) {
  return std::make_unique<PromotionMoves>(bench);
}

std::unique_ptr<Neighbourhood> MakeExchangeMoves(MoveBench& bench) {
  return std::make_unique<ExchangeMoves>(bench);
}

}  // namespace neuroshard
