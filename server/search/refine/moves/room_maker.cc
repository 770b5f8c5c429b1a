#include "server/search/refine/moves/room_maker.h"

#include <algorithm>
#include <limits>

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

}  // namespace

RoomMaker::RoomMaker(MoveBench& bench)
    : MoveTools(bench),
      splits_(std::ranges::any_of(rules_.residencies(),
                                  [](const Residency& of) { return IsDynamic(of.kernel); })),
      more_ms_(context_.request().topology.devices.size(), 0),
      changed_(context_.request().tables.size(), false),
      changes_of_rank_(more_ms_.size()) {}

void RoomMaker::Reset(double most_ms) {
  most_ms_ = most_ms;
  for (const int rank : listed_ranks_) At(changes_of_rank_, rank).is_listed = false;
  listed_ranks_.clear();
  left_ = solution_.pools();
  for (const Touched& at : touched_) At(more_ms_, at.rank) = 0;
  touched_.clear();
}

void RoomMaker::Begin() {
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

bool RoomMaker::IsFree(int table) const {
  return solution_.fixed(table) == nullptr && rules_.of(table).residencies->size() > 1 &&
         solution_.unit(solution_.units_of_table(table).front()).spread() != Spread::kCopies;
}

Unit RoomMaker::InResidency(Unit unit, int residency) {
  unit.residency = residency;
  unit.shards = shard_table_.InResidency(unit.shards, residency);
  return unit;
}

void RoomMaker::Count(const Unit& unit, int sign) {
  solution_.ForEachShard(unit, [&](int rank, int shard) {
    touched_.push_back({rank, shard, sign});
    left_->Add(rank, shard_table_.tier_bytes(shard), sign);
    At(more_ms_, rank) += sign * pricer_.ShareOf(rank, shard);
  });
}

void RoomMaker::Remove(int id) {
  const Unit& unit = solution_.unit(id);
  removed_.push_back(id);
  Count(unit, -1);
  if (At(changed_, unit.table)) return;
  At(changed_, unit.table) = true;
  changed_tables_.push_back(unit.table);
}

void RoomMaker::Add(const Unit& unit) {
  shard_table_.PredictNew();
  added_.push_back(unit);
  Count(unit, 1);
}

void RoomMaker::SetResidency(int table, int residency) {
  // All units at first, so that their shards are predicted together.
  for (const int id : solution_.units_of_table(table)) InResidency(solution_.unit(id), residency);
  for (const int id : solution_.units_of_table(table)) {
    Remove(id);
    Add(InResidency(solution_.unit(id), residency));
  }
}

const RoomMaker::RankChanges& RoomMaker::ChangesOf(int rank) {
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

void RoomMaker::ListChanges(int rank, std::vector<Change>& changes) {
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

bool RoomMaker::Fits(int table, int residency) {
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

const RoomMaker::Change* RoomMaker::LeastLoss(const RankChanges& changes, MemoryTier tier,
                                              std::int64_t needed, double& best_ratio) const {
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

// What loses least a byte that is needed, until there is room, unless that takes too long.
bool RoomMaker::Demote(int rank) {
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
bool RoomMaker::DemoteFrom(MemoryTier tier, int rank) {
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

bool RoomMaker::MakeRoom() {
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

const RoomMaker::Change* RoomMaker::MostGain(const RankChanges& changes, std::int64_t free) {
  for (const auto& [key, position] : changes.by_gain) {
    const Change& change = At(changes.all, position);
    if (-change.on_device() <= free && !At(changed_, change.table) &&
        Fits(change.table, change.residency)) {
      return &change;
    }
  }
  return nullptr;
}

void RoomMaker::Promote(int rank) {
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

}  // namespace neuroshard
