#include "server/search/refine/moves/residency_moves.h"

#include <algorithm>
#include <limits>

#include "server/search/refine/solution/lowest_place.h"

namespace neuroshard {
namespace {

// Tables of the source that are promoted, the costliest there.
constexpr std::size_t kPromotedTables = 12;
// Units of the source that leave it, ranks that they go to, and units that come back for one.
constexpr std::size_t kUnits = 10;
constexpr std::size_t kPlacesOfMove = 4;
constexpr std::size_t kReturns = 8;
// Tables that are promoted where a move leaves memory free, on each rank.
constexpr int kPromotions = 3;
// Steps in a table's list of residencies that make or use room on a rank, besides its two ends.
constexpr std::ptrdiff_t kSteps[] = {1, 2, 4, 8};

// A lower bound of lost_ms / min(freed, needed), whatever is needed (1 byte or more).
double LeastLossAByte(double lost_ms, std::int64_t freed) {
  return lost_ms < 0 ? lost_ms : lost_ms / static_cast<double>(freed);
}

}  // namespace

ResidencyMoves::ResidencyMoves(MoveBench& bench)
    : MoveTools(bench),
      placer_(bench),
      more_ms_(context_.request().topology.devices.size(), 0),
      changed_(context_.request().tables.size(), false),
      changes_of_rank_(more_ms_.size()),
      splits_(std::ranges::any_of(rules_.residencies(),
                                  [](const Residency& of) { return IsDynamic(of.kernel); })) {}

void ResidencyMoves::Collect(int source, ResidencyNeighbourhood neighbourhood, double most_ms,
                             MoveList& list) {
  most_ms_ = most_ms;
  for (const int rank : listed_ranks_) {
    changes_of_rank_[static_cast<std::size_t>(rank)].is_listed = false;
  }
  listed_ranks_.clear();
  left_ = solution_.pools();
  for (const Touched& at : touched_) more_ms_[static_cast<std::size_t>(at.rank)] = 0;
  touched_.clear();
  pricer_.CostliestTables(
      source, kPromotedTables, [&](int table) { return IsFree(table); }, tables_);
  if (neighbourhood == ResidencyNeighbourhood::kPromotions) {
    TryPromotions(list);
    Begin();
    Promote(source);
    if (!added_.empty()) Complete(list);
    return;
  }
  TryShiftsAndSwaps(source, list);
  TryHostBlocks(source, list);
}

bool ResidencyMoves::IsFree(int table) const {
  return solution_.fixed(table) == nullptr && rules_.of(table).residencies->size() > 1 &&
         solution_.unit(solution_.units_of_table(table).front()).spread() != Spread::kCopies;
}

void ResidencyMoves::Begin() {
  removed_.clear();
  added_.clear();
  for (const Touched& at : touched_) {
    more_ms_[static_cast<std::size_t>(at.rank)] = 0;
    left_->Add(at.rank, shard_table_.tier_bytes(at.shard), -at.sign);
  }
  touched_.clear();
  for (const int table : changed_tables_) changed_[static_cast<std::size_t>(table)] = false;
  changed_tables_.clear();
}

template <typename Moved>
void ResidencyMoves::BeginWith(std::initializer_list<std::pair<int, int>> places,
                               const Moved& moved) {
  Begin();
  for (const auto& [id, place] : places) Remove(id);
  for (const auto& [id, place] : places) Add(moved(id, place));
}

Unit ResidencyMoves::InResidency(Unit unit, int residency) {
  unit.residency = residency;
  unit.shards = shard_table_.InResidency(unit.shards, residency);
  return unit;
}

void ResidencyMoves::Count(const Unit& unit, int sign) {
  solution_.ForEachShard(unit, [&](int rank, int shard) {
    touched_.push_back({rank, shard, sign});
    left_->Add(rank, shard_table_.tier_bytes(shard), sign);
    more_ms_[static_cast<std::size_t>(rank)] += sign * pricer_.ShareOf(rank, shard);
  });
}

void ResidencyMoves::Remove(int id) {
  const Unit& unit = solution_.unit(id);
  removed_.push_back(id);
  Count(unit, -1);
  if (changed_[static_cast<std::size_t>(unit.table)]) return;
  changed_[static_cast<std::size_t>(unit.table)] = true;
  changed_tables_.push_back(unit.table);
}

void ResidencyMoves::Add(const Unit& unit) {
  shard_table_.PredictNew();
  added_.push_back(unit);
  Count(unit, 1);
}

void ResidencyMoves::SetResidency(int table, int residency) {
  // All units at first, so that their shards are predicted together.
  for (const int id : solution_.units_of_table(table)) InResidency(solution_.unit(id), residency);
  for (const int id : solution_.units_of_table(table)) {
    Remove(id);
    Add(InResidency(solution_.unit(id), residency));
  }
}

const ResidencyMoves::RankChanges& ResidencyMoves::ChangesOf(int rank) {
  RankChanges& changes = changes_of_rank_[static_cast<std::size_t>(rank)];
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

void ResidencyMoves::ListChanges(int rank, std::vector<Change>& changes) {
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
    const std::ptrdiff_t now = std::ranges::find(residencies, unit.residency) - residencies.begin();
    for (const int residency : rules_.LeastOnDevice(unit.table)) add(residency);
    for (const std::ptrdiff_t step : kSteps) {
      if (now - step > 0) add(residencies[static_cast<std::size_t>(now - step)]);
      if (now + step < size - 1) add(residencies[static_cast<std::size_t>(now + step)]);
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
  const std::size_t listed = changes.size();
  context_.AddWork(Work::kEstimate, 8 * listed);
}

bool ResidencyMoves::Fits(int table, int residency) {
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

const ResidencyMoves::Change* ResidencyMoves::LeastLoss(const RankChanges& changes, MemoryTier tier,
                                                        std::int64_t needed,
                                                        double& best_ratio) const {
  const Change* best = nullptr;
  for (const auto& [least_ratio, position] : changes.by_loss[tier]) {
    if (least_ratio > best_ratio) break;  // as all that follow
    const Change& change = changes.all[static_cast<std::size_t>(position)];
    if (changed_[static_cast<std::size_t>(change.table)]) continue;
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

// What loses least a byte that is needed, until there is room, unless that takes too long.
bool ResidencyMoves::Demote(int rank) {
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

// Moves tables of all ranks of the host, which share the memory, to a slower one.
bool ResidencyMoves::DemoteFrom(MemoryTier tier, int rank) {
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

bool ResidencyMoves::MakeRoom() {
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

const ResidencyMoves::Change* ResidencyMoves::MostGain(const RankChanges& changes,
                                                       std::int64_t free) {
  for (const auto& [key, position] : changes.by_gain) {
    const Change& change = changes.all[static_cast<std::size_t>(position)];
    if (-change.on_device() <= free && !changed_[static_cast<std::size_t>(change.table)] &&
        Fits(change.table, change.residency)) {
      return &change;
    }
  }
  return nullptr;
}

void ResidencyMoves::Promote(int rank) {
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

void ResidencyMoves::Complete(MoveList& list) {
  if (!MakeRoom()) return;
  std::size_t shards = 0;
  for (const Unit& unit : added_) shards += static_cast<std::size_t>(unit.shards.count);
  context_.AddWork(Work::kEstimate, 4 * added_.size() + shards);
  const double estimate_ms = pricer_.Estimate(removed_, added_);
  if (list.Wants(estimate_ms)) list.Add(estimate_ms, removed_, added_);
}

void ResidencyMoves::TryPromotions(MoveList& list) {
  for (const int table : tables_) {
    if (context_.ShouldStop()) return;
    const Unit& unit = solution_.unit(solution_.units_of_table(table).front());
    const std::vector<int>& residencies = *rules_.of(table).residencies;
    auto at = std::ranges::find(residencies, unit.residency);
    for (++at; at < residencies.end(); ++at) {
      if (!rules_.Allows(table, *at, unit.type)) continue;
      Begin();
      SetResidency(table, *at);
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
        if (Demote(target)) {
          Promote(source);
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
        if (!Demote(target) || !Demote(source)) continue;
        Promote(source);
        Promote(target);
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
