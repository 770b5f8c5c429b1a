#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/domain/memory_pools.h"
#include "server/search/refine/moves/neighbourhood.h"
#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Tables that are promoted where a move leaves memory free, on each rank.
constexpr int kPromotions = 3;
// Steps in a table's list of residencies that make or use room on a rank, besides its two ends.
constexpr std::ptrdiff_t kSteps[] = {1, 2, 4, 8};

// A lower bound of lost_ms / min(freed, needed), whatever is needed (1 byte or more).
double LeastLossAByte(double lost_ms, std::int64_t freed) {
  return lost_ms < 0 ? lost_ms : lost_ms / static_cast<double>(freed);
}

// Puts one move together, and makes it one that fits. Where the move needs more of a memory than
// there is, tables are demoted that lose least time a byte; where it leaves device memory free,
// tables are promoted that gain most a byte.
//
//   maker.Reset(most_ms);    // once for all moves of a solution
//   maker.Begin();
//   maker.Remove(id);
//   maker.Add(elsewhere);
//   if (maker.MakeRoom()) list.Add(estimate_ms, maker.removed(), maker.added());
//
// A change of a table's residency removes and adds all of its units, and a move changes a table
// once. Rules on residencies hold for what it adds; Solution::Allows says the rest. A demotion takes
// time in the changes of residency on a rank, of which there are up to 11 a table. For one thread.
class RoomMaker : MoveTools {
 public:
  // `bench` must outlive it.
  explicit RoomMaker(Workbench& bench)
      : MoveTools(bench),
        splits_(std::ranges::any_of(rules_.residencies(),
                                    [](const Residency& of) { return IsDynamic(of.kernel); })),
        more_ms_(context_.request().topology.devices.size(), 0),
        changed_(context_.request().tables.size(), false),
        changes_of_rank_(more_ms_.size()) {}

  // For moves of the solution as it is. Moves that are estimated at more than `most_ms` for certain
  // may be given up.
  void Reset(double most_ms) {
    most_ms_ = most_ms;
    for (const int rank : listed_ranks_) At(changes_of_rank_, rank).is_listed = false;
    listed_ranks_.clear();
    left_ = solution_.pools();
    for (const Touched& at : touched_) At(more_ms_, at.rank) = 0;
    touched_.clear();
  }

  // Begins with no change.
  void Begin() {
    removed_.clear();
    added_.clear();
    for (const Touched& at : touched_) {
      At(more_ms_, at.rank) = 0;
      left_->Add(at.rank, shard_table_.tier_bytes(at.shard), -at.sign);
    }
    touched_.clear();
    for (const int table : changed_tables_) At(changed_, table) = false;
    changed_tables_.clear();
  }

  void Remove(int id) {
    const Unit& unit = solution_.unit(id);
    removed_.push_back(id);
    Count(unit, -1);
    if (At(changed_, unit.table)) return;
    At(changed_, unit.table) = true;
    changed_tables_.push_back(unit.table);
  }

  void Add(const Unit& unit) {
    shard_table_.PredictNew();
    added_.push_back(unit);
    Count(unit, 1);
  }

  // Removes and adds all units of the table.
  void SetResidency(int table, int residency) {
    // All units at first, so that their shards are predicted together.
    for (const int id : solution_.units_of_table(table)) InResidency(solution_.unit(id), residency);
    for (const int id : solution_.units_of_table(table)) {
      Remove(id);
      Add(InResidency(solution_.unit(id), residency));
    }
  }

  // Whether the table may have another residency.
  bool IsFree(int table) const {
    return solution_.fixed(table) == nullptr && rules_.of(table).residencies->size() > 1 &&
           solution_.unit(solution_.units_of_table(table).front()).spread() != Spread::kCopies;
  }

  // Until the rank's tables fit into its device's memory. False: they cannot, or that takes too
  // long.
  bool Demote(int rank) {
    if (FreeBytes(rank) >= 0) return true;
    const RankChanges& changes = ChangesOf(rank);
    while (FreeBytes(rank) < 0) {
      double ratio = std::numeric_limits<double>::infinity();
      const Change* best = LeastLoss(changes, MemoryTier::kDevice, -FreeBytes(rank), ratio);
      // What follows loses no less a byte.
      if (best == nullptr || IsTooSlow(rank, -ratio * static_cast<double>(FreeBytes(rank)))) {
        return false;
      }
      SetResidency(best->table, best->residency);
    }
    return true;
  }

  // Up to three tables, into device memory that the rank has free.
  void Promote(int rank) {
    if (FreeBytes(rank) <= 0) return;
    const RankChanges& changes = ChangesOf(rank);
    for (int i = 0; i < kPromotions; ++i) {
      const std::int64_t free = FreeBytes(rank);
      const Change* most = MostGain(changes, free);
      if (most == nullptr) return;
      // The largest step of that table that there is room for.
      const int table = most->table;
      const auto first =
          std::lower_bound(changes.all.begin(), changes.all.end(), table,
                           [](const Change& change, int of) { return change.table < of; });
      for (auto change = first; change != changes.all.end() && change->table == table; ++change) {
        if (change->lost_ms < most->lost_ms && -change->on_device() <= free &&
            Fits(table, change->residency)) {
          most = &*change;
        }
      }
      SetResidency(most->table, most->residency);
    }
  }

  // By demotions, wherever the move needs it. Whether there is room then: in device memory, and in
  // all memories where tables may leave that of hosts.
  bool MakeRoom() {
    const auto demote = [&] {
      for (std::size_t i = 0; i < touched_.size(); ++i) {  // which demotions add to
        if (!Demote(touched_[i].rank)) return false;
      }
      return true;
    };
    if (!demote()) return false;
    const MemoryTier slowest = rules_.slowest_tier();
    if (slowest <= kSharedMemories.front().tier && !splits_) return true;
    for (const SharedMemory& memory : kSharedMemories) {
      const bool may_leave = memory.tier < slowest || splits_;
      for (std::size_t i = 0; may_leave && i < touched_.size(); ++i) {
        if (!DemoteFrom(memory.tier, touched_[i].rank)) return false;
      }
    }
    if (!demote()) return false;  // which caches of rows in the slower ones may need
    return std::ranges::none_of(touched_,
                                [&](const Touched& at) { return left_->SharesTooMuch(at.rank); });
  }

  const std::vector<int>& removed() const { return removed_; }
  const std::vector<Unit>& added() const { return added_; }

 private:
  // A table in another residency, and what a rank gains by it.
  struct Change {
    int table = 0;
    int residency = 0;
    // By shards on the rank: of its device, below 0 where it takes more, and of memories that are
    // faster than the one where the rows are then; of dynamic tables, of all.
    TierBytes freed_bytes = {};
    double lost_ms = 0;  // below 0 where it gains

    std::int64_t on_device() const { return freed_bytes[MemoryTier::kDevice]; }
  };
  // Positions of changes, by a key that ascends.
  using Order = std::vector<std::pair<double, int>>;
  // Those of the tables on a rank, and the orders in which one is looked for.
  struct RankChanges {
    std::vector<Change> all;  // by table
    ByTier<Order> by_loss;    // that free bytes of a memory, by the least that one byte can cost
    Order by_gain;  // that save time for device memory, by what they save a byte, most first
    bool is_listed = false;  // since Reset
  };
  // A shard that comes to a rank (sign 1) or leaves it, which left_ has counted.
  struct Touched {
    int rank = 0;
    int shard = 0;
    int sign = 1;
  };

  void Count(const Unit& unit, int sign) {
    solution_.ForEachShard(unit, [&](int rank, int shard) {
      touched_.push_back({rank, shard, sign});
      left_->Add(rank, shard_table_.tier_bytes(shard), sign);
      At(more_ms_, rank) += sign * pricer_.ShareOf(rank, shard);
    });
  }

  // The unit in the residency, its shards predicted or to be.
  Unit InResidency(Unit unit, int residency) {
    unit.residency = residency;
    unit.shards = shard_table_.InResidency(unit.shards, residency);
    return unit;
  }

  // Listed once after a Reset.
  const RankChanges& ChangesOf(int rank) {
    RankChanges& changes = At(changes_of_rank_, rank);
    if (!changes.is_listed) {
      changes.is_listed = true;
      listed_ranks_.push_back(rank);
      ListChanges(rank, changes.all);
      const auto order = [&](Order& by_key, const auto& is_in, const auto& key) {
        by_key.clear();
        for (std::size_t i = 0; i < changes.all.size(); ++i) {
          const Change& change = changes.all[i];
          if (is_in(change)) by_key.emplace_back(key(change), static_cast<int>(i));
        }
        std::ranges::sort(by_key);
      };
      for (const auto& word : kWords<MemoryTier>) {
        const MemoryTier tier = word.value;
        order(
            changes.by_loss[tier], [&](const Change& c) { return c.freed_bytes[tier] > 0; },
            [&](const Change& c) { return LeastLossAByte(c.lost_ms, c.freed_bytes[tier]); });
      }
      order(
          changes.by_gain, [](const Change& c) { return c.on_device() < 0 && c.lost_ms < 0; },
          [](const Change& c) { return -c.lost_ms / static_cast<double>(c.on_device()); });
    }
    context_.AddWork(Work::kEstimate, 1 + changes.all.size() / 8);
    return changes;
  }

  void ListChanges(int rank, std::vector<Change>& changes) {
    on_rank_.clear();
    solution_.ForEachShardOn(rank, [&](int id, int /*shard*/) {
      if (IsFree(solution_.unit(id).table)) on_rank_.push_back(id);
    });
    // Several blocks of a table on the rank change together.
    std::ranges::stable_sort(
        on_rank_, [&](int a, int b) { return solution_.unit(a).table < solution_.unit(b).table; });
    changes.clear();
    for (const int id : on_rank_) {
      const Unit& unit = solution_.unit(id);
      if (!changes.empty() && changes.back().table == unit.table) continue;
      const std::vector<int>& residencies = *rules_.of(unit.table).residencies;
      const auto add = [&](int residency) {
        if (residency == unit.residency || !rules_.Allows(unit.table, residency, unit.type)) return;
        changes.push_back({unit.table, residency});
      };
      const std::ptrdiff_t size = std::ssize(residencies);
      const std::ptrdiff_t now =
          std::ranges::find(residencies, unit.residency) - residencies.begin();
      for (const int residency : rules_.LeastOnDevice(unit.table)) add(residency);
      for (const std::ptrdiff_t step : kSteps) {
        if (now - step > 0) add(At(residencies, now - step));
        if (now + step < size - 1) add(At(residencies, now + step));
      }
      if (size > 1) add(residencies.back());
    }
    const auto for_each_shard = [&](const auto& visit) {
      std::size_t first = 0;
      for (const int id : on_rank_) {
        const Unit unit = solution_.unit(id);
        while (first < changes.size() && changes[first].table < unit.table) ++first;
        for (std::size_t c = first; c < changes.size() && changes[c].table == unit.table; ++c) {
          visit(unit, InResidency(unit, changes[c].residency), changes[c]);
        }
      }
    };
    for_each_shard([](const Unit&, const Unit&, Change&) {});
    shard_table_.PredictNew();
    for_each_shard([&](const Unit& unit, const Unit& then, Change& change) {
      int i = 0;
      while (solution_.RankOf(unit, i) != rank) ++i;
      change.lost_ms += static_cast<double>(shard_table_.shard_cost_ms(then.shards.at(i), rank)) -
                        static_cast<double>(shard_table_.shard_cost_ms(unit.shards.at(i), rank));
      const Residency& residency = rules_.residency(then.residency);
      for (const auto& [tier, name] : kWords<MemoryTier>) {
        const bool keeps_rows = tier >= residency.tier() && !IsDynamic(residency.kernel);
        if (tier != MemoryTier::kDevice && keeps_rows) continue;
        change.freed_bytes[tier] += shard_table_.tier_bytes(unit.shards.at(i))[tier] -
                                    shard_table_.tier_bytes(then.shards.at(i))[tier];
      }
    });
    context_.AddWork(Work::kEstimate, 8 * changes.size());
  }

  std::int64_t FreeBytes(int rank) const { return left_->LeftOnDevice(rank); }
  // Whether the move, and so much more compute of shards on the rank, is estimated at more
  // than most_ms_ for certain. Only where a rank's communication is its own; otherwise it waits less
  // when it computes more.
  bool IsTooSlow(int rank, double more_ms) const {
    return pricer_.separable() && pricer_.objective().rank(rank).total_ms() + At(more_ms_, rank) +
                                          pricer_.compute_scale(rank) * more_ms >
                                      most_ms_;
  }
  // Whether the table can take the residency as far as device memory goes.
  bool Fits(int table, int residency) {
    context_.AddWork(Work::kEstimate, 3 * solution_.units_of_table(table).size());
    bool fits = true;
    for (const int id : solution_.units_of_table(table)) {
      const Unit& unit = solution_.unit(id);
      const Unit then = InResidency(unit, residency);
      for (int i = 0; i < unit.shards.count; ++i) {
        const int rank = solution_.RankOf(unit, i);
        const std::int64_t more =
            shard_table_.bytes(then.shards.at(i)) - shard_table_.bytes(unit.shards.at(i));
        if (more > 0 && more > FreeBytes(rank)) fits = false;
      }
    }
    return fits;
  }

  // The change that loses least time a byte of those that are `needed`, if that is less than
  // `best_ratio`, which it is then. Takes time in the changes that might lose less.
  const Change* LeastLoss(const RankChanges& changes, MemoryTier tier, std::int64_t needed,
                          double& best_ratio) const {
    const Change* best = nullptr;
    for (const auto& [least_ratio, position] : changes.by_loss[tier]) {
      if (least_ratio > best_ratio) break;  // as all that follow
      const Change& change = At(changes.all, position);
      if (At(changed_, change.table)) continue;
      const double ratio =
          change.lost_ms / static_cast<double>(std::min(change.freed_bytes[tier], needed));
      // Among equal changes the first in the list wins.
      const bool is_before = best != nullptr && &change < best;
      if (ratio > best_ratio || (ratio == best_ratio && !is_before)) continue;
      best = &change;
      best_ratio = ratio;
    }
    return best;
  }

  // Frees a memory that the rank shares with its host: tables go to a slower one.
  bool DemoteFrom(MemoryTier tier, int rank) {
    const HostRanks& host = solution_.host(solution_.host_of(rank));
    while (left_->Left(rank, tier) < 0) {
      const std::int64_t needed = -left_->Left(rank, tier);
      double ratio = std::numeric_limits<double>::infinity();
      const Change* best = nullptr;
      for (int r = host.first; r < host.first + host.count; ++r) {
        const Change* of_rank = LeastLoss(ChangesOf(r), tier, needed, ratio);
        if (of_rank != nullptr) best = of_rank;
      }
      if (best == nullptr) return false;
      SetResidency(best->table, best->residency);
    }
    return true;
  }

  // The change that gains most a byte of those that there is room for; null: none.
  const Change* MostGain(const RankChanges& changes, std::int64_t free) {
    for (const auto& [key, position] : changes.by_gain) {
      const Change& change = At(changes.all, position);
      if (-change.on_device() <= free && !At(changed_, change.table) &&
          Fits(change.table, change.residency)) {
        return &change;
      }
    }
    return nullptr;
  }

  const bool splits_;  // whether tables may take less host memory for more of the device
  double most_ms_ = 0;
  // The move.
  std::vector<int> removed_;
  std::vector<Unit> added_;
  std::vector<double> more_ms_;  // by rank: of its total
  std::vector<Touched> touched_;
  std::vector<bool> changed_;  // by table
  std::vector<int> changed_tables_;
  std::optional<MemoryPools> left_;  // after the move
  std::vector<RankChanges> changes_of_rank_;
  std::vector<int> listed_ranks_;
  std::vector<int> on_rank_;  // scratch of ListChanges
};

// Tables of the source that are promoted, the costliest there.
constexpr std::size_t kPromotedTables = 12;
// Units of the source that leave it, ranks that they go to, and units that come back for one.
constexpr std::size_t kUnits = 10;
constexpr std::size_t kPlacesOfMove = 4;
constexpr std::size_t kReturns = 8;

// Moves that a RoomMaker completes.
class ResidencyMoves : public Neighbourhood {
 protected:
  explicit ResidencyMoves(Workbench& bench) : Neighbourhood(bench), maker_(bench) {}

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
  explicit PromotionMoves(Workbench& bench) : ResidencyMoves(bench) {}

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
  explicit ExchangeMoves(Workbench& bench) : ResidencyMoves(bench) {}

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
    const std::vector<int> targets = pricer_.objective().Lowest(kPlacesOfMove, source);
    const auto holds = [&](int table, int rank) {
      for (const int id : solution_.units_of_table(table)) {
        if (solution_.unit(id).place == rank) return true;
      }
      return false;
    };
    std::vector<std::vector<UnitShare>> returns;
    for (const int target : targets) returns.push_back(on(target, kReturns));
    // Making room takes time: what would be too slow even if there were room is left out.
    const double cost_ms = pricer_.objective().cost_ms();
    const double source_ms = pricer_.objective().rank(source).total_ms();
    const auto share_ms = [&](int rank, int id) {
      return pricer_.ShareOf(rank, solution_.unit(id).shards.full);
    };
    for (const auto& [of_source_ms, id] : on(source, kUnits)) {
      const int table = solution_.unit(id).table;
      for (std::size_t t = 0; t < targets.size(); ++t) {
        const int target = targets[t];
        if (context_.ShouldStop()) return;
        if (holds(table, target) || !rules_.of(table).ranks->contains(target)) continue;
        const double there_ms = pricer_.objective().rank(target).total_ms() + share_ms(target, id);
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

std::unique_ptr<Neighbourhood> MakePromotionMoves(Workbench& bench) {
  return std::make_unique<PromotionMoves>(bench);
}

std::unique_ptr<Neighbourhood> MakeExchangeMoves(Workbench& bench) {
  return std::make_unique<ExchangeMoves>(bench);
}

}  // namespace neuroshard
