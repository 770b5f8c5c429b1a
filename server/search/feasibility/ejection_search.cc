#include "server/search/feasibility/ejection_search.h"

#include <algorithm>
#include <functional>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

// Bundles that one may eject at a time, besides those that rules name.
constexpr std::size_t kMaxEjected = 3;
// Sets of bundles that are looked at in the time of a step.
constexpr int kLooksOfAStep = 8;
// Random changes after each ejection.
constexpr int kShuffles = 10;
// Ways to place the parts of a table that are looked at one by one.
constexpr std::size_t kMaxCandidates = 64;

void AddOnce(int value, std::vector<int>& values) {
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

bool Contains(const std::vector<int>& values, int value) {
  return std::ranges::find(values, value) != values.end();
}

}  // namespace

EjectionSearch::EjectionSearch(const PlanRequest& request, const CompiledRules& rules,
                               PlacedBundles& placed, const StopSignal& stop)
    : request_(request),
      rules_(rules),
      placed_(placed),
      stop_(stop),
      previous_(request),
      random_(request.search.seed.value_or(0)),
      homes_(static_cast<std::size_t>(placed.size())),
      penalties_(static_cast<std::size_t>(placed.size()), 1) {}

std::int64_t EjectionSearch::MovedBytes(int bundle, const BundlePlacement& placement) const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < placement.size(); ++i) {
    for (const Shard& shard : placement[i].shards) {
      bytes += previous_.MovedBytes(tables_of(bundle)[i], placement[i].layout.kernel, shard);
    }
  }
  return bytes;
}

std::vector<int> EjectionSearch::InTheWay(int bundle, const BundlePlacement& placement) const {
  std::vector<int> bundles;
  for (std::size_t i = 0; i < placement.size(); ++i) {
    for (const Shard& shard : placement[i].shards) {
      AddInTheWay(tables_of(bundle)[i], shard.rank, bundles);
    }
  }
  std::erase(bundles, bundle);
  return bundles;
}

void EjectionSearch::AddInTheWay(int table, int rank, std::vector<int>& bundles) const {
  const TableRules& of = rules_.of(table);
  const int host = rules_.host_of(rank);
  const auto add_if = [&](int other, const auto& is_in_the_way) {
    const std::vector<Shard>& shards = placed_.ledger().of(other).shards;
    if (other != table && std::ranges::any_of(shards, is_in_the_way)) {
      AddOnce(placed_.bundle_of(other), bundles);
    }
  };
  if (of.host_group >= 0) {
    for (const int other : At(rules_.host_groups(), of.host_group)) {
      add_if(other, [&](const Shard& s) { return rules_.host_of(s.rank) != host; });
    }
  }
  for (const int g : of.separate_groups) {
    const TableGroup& group = At(rules_.separate_groups(), g);
    for (const int other : group.tables) {
      add_if(other, [&](const Shard& s) {
        return group.level == GroupLevel::kRank ? s.rank == rank : rules_.host_of(s.rank) == host;
      });
    }
  }
}

std::vector<BundlePlacement> EjectionSearch::CandidatesFor(int bundle, std::size_t most) const {
  std::vector<std::pair<std::pair<std::int64_t, std::int64_t>, BundlePlacement>> all;
  const auto add = [&](BundlePlacement placement, std::int64_t left) {
    const std::int64_t moved = MovedBytes(bundle, placement);
    all.emplace_back(std::pair(moved, -left), std::move(placement));
  };
  const int table = tables_of(bundle).front();
  for (const int rank : placed_.ranks_of(bundle)) {
    if (BundlePlacement placement = placed_.OnRank(bundle, rank); !placement.empty()) {
      add(std::move(placement), left_bytes(rank));
    }
  }
  if (tables_of(bundle).size() == 1) {
    const auto add_placed = [&](const PlacedTable& placed_table) {
      std::int64_t left = std::numeric_limits<std::int64_t>::max();
      for (const Shard& shard : placed_table.shards) {
        left = std::min(left, left_bytes(shard.rank));
      }
      add({placed_table}, left);
      return false;
    };
    if (!home(bundle).empty()) {
      add_placed(home(bundle).front());
      placed_.places().ForEachShift(table, home(bundle).front(), add_placed);
    }
    placed_.places().ForEachOther(table, placed_.ledger(), most, add_placed);
  }
  std::ranges::stable_sort(all, {}, &decltype(all)::value_type::first);
  std::vector<BundlePlacement> sorted;
  for (auto& [key, placement] : all) sorted.push_back(std::move(placement));
  return sorted;
}

// What is new, or where nothing is in place, goes where least room is left then; the rest where
// fewest bytes move, and of those where most room is.
bool EjectionSearch::PutSomewhere(int bundle) {
  const auto put = [&](const BundlePlacement& placement) {
    --steps_left_;
    return placed_.Put(bundle, placement);
  };
  const std::vector<int>& tables = tables_of(bundle);
  if (std::ranges::any_of(tables, [&](int t) { return previous_.Has(t); })) {
    const std::vector<BundlePlacement> all = CandidatesFor(bundle, 1);
    return std::ranges::any_of(all, put);
  }
  if (placed_.CanBeOnOneRank(bundle)) {
    std::vector<std::pair<std::int64_t, int>> ranks;
    for (const int rank : placed_.ranks_of(bundle)) {
      const std::int64_t left = left_bytes(rank);
      if (left >= placed_.BytesOnOneRank(bundle)) ranks.push_back({left, rank});
    }
    std::ranges::sort(ranks);
    steps_left_ -= rules_.num_ranks() / kLooksOfAStep;
    for (const auto& [left, rank] : ranks) {
      if (put(placed_.OnRank(bundle, rank))) return true;
    }
  }
  if (tables.size() > 1) return false;
  const auto put_alone = [&](const PlacedTable& placed_table) { return put({placed_table}); };
  return placed_.places().ForEachOther(tables.front(), placed_.ledger(), 1, put_alone);
}

template <typename Rest>
bool EjectionSearch::PutInstead(int bundle, const BundlePlacement& placement,
                                const std::vector<int>& ejected, const Rest& rest) {
  const std::vector<BundlePlacement> before =
      Mapped(ejected, [this](int other) { return placed_.Take(other); });
  if (placed_.Put(bundle, placement)) {
    if (rest()) return true;
    placed_.Take(bundle);
  }
  for (std::size_t i = ejected.size(); i-- > 0;) placed_.Put(ejected[i], before[i]);
  return false;
}

bool EjectionSearch::WouldFit(int bundle, const BundlePlacement& placement,
                              const std::vector<int>& ejected) {
  --steps_left_;
  bool fits = false;
  PutInstead(bundle, placement, ejected, [&] {
    fits = true;
    return false;
  });
  return fits;
}

EjectionSearch::Entry EjectionSearch::CheapestEntry(int bundle) {
  Entry best;
  std::uint64_t ties = 0;
  int looked = 0;
  const std::int64_t needed = placed_.BytesOnOneRank(bundle);
  if (!placed_.CanBeOnOneRank(bundle)) return EntryByForce(bundle);
  for (const int rank : placed_.ranks_of(bundle)) {
    const BundlePlacement placement = placed_.OnRank(bundle, rank);
    std::vector<int> ejected = InTheWay(bundle, placement);
    std::int64_t penalty = 0;
    std::int64_t room = left_bytes(rank);
    for (const int other : ejected) {
      penalty += At(penalties_, other);
      room += placed_.BytesOn(other, rank);
    }
    struct Candidate {
      int bundle;
      std::int64_t penalty;
      std::int64_t bytes;
    };
    std::vector<Candidate> candidates;
    std::int64_t max_bytes = 0;
    for (const int other : placed_.BundlesOn(rank)) {
      if (Contains(ejected, other)) continue;
      candidates.push_back({other, At(penalties_, other), placed_.BytesOn(other, rank)});
      max_bytes = std::max(max_bytes, candidates.back().bytes);
    }
    const std::size_t by_rule = ejected.size();
    // Those from `from` on may still be ejected.
    const auto extend = [&](const auto& self, std::size_t from) -> void {
      if (++looked % kLooksOfAStep == 0) --steps_left_;
      if (penalty > best.penalty || steps_left_ <= 0) return;
      const std::size_t more = kMaxEjected - (ejected.size() - by_rule);
      if (room + static_cast<std::int64_t>(more) * max_bytes < needed) return;
      if (room >= needed) {
        const bool tie = penalty == best.penalty;
        if ((!tie || random_.Below(ties + 1) == 0) && WouldFit(bundle, placement, ejected)) {
          ties = tie ? ties + 1 : 1;
          best = {placement, ejected, penalty};
          return;
        }
      }
      if (more == 0) return;
      for (std::size_t c = from; c < candidates.size(); ++c) {
        ejected.push_back(candidates[c].bundle);
        penalty += candidates[c].penalty;
        room += candidates[c].bytes;
        self(self, c + 1);
        ejected.pop_back();
        penalty -= candidates[c].penalty;
        room -= candidates[c].bytes;
      }
    };
    extend(extend, 0);
  }
  if (best.placement.empty()) return EntryByForce(bundle);
  return best;
}

// For layouts of several shards: on each rank those leave that were easiest to place, until there
// is room.
EjectionSearch::Entry EjectionSearch::EntryByForce(int bundle) {
  Entry best;
  if (tables_of(bundle).size() > 1) return best;
  const int table = tables_of(bundle).front();
  const auto consider = [&](const PlacedTable& placed_table) {
    Entry entry{{placed_table}, InTheWay(bundle, {placed_table}), 0};
    std::vector<std::pair<int, std::int64_t>> needed;  // by rank
    for (const Shard& shard : placed_table.shards) {
      const std::int64_t bytes = placed_.ShardBytes(table, placed_table, shard);
      const auto at = std::ranges::find(needed, shard.rank, &std::pair<int, std::int64_t>::first);
      if (at == needed.end()) {
        needed.emplace_back(shard.rank, bytes);
      } else {
        at->second += bytes;
      }
    }
    for (const auto& [rank, bytes] : needed) {
      std::int64_t room = left_bytes(rank);
      for (const int other : entry.ejected) room += placed_.BytesOn(other, rank);
      std::vector<int> others = placed_.BundlesOn(rank);
      random_.Shuffle(others);
      std::ranges::stable_sort(others,
                               [&](int a, int b) { return At(penalties_, a) < At(penalties_, b); });
      for (const int other : others) {
        if (room >= bytes) break;
        if (Contains(entry.ejected, other)) continue;
        entry.ejected.push_back(other);
        room += placed_.BytesOn(other, rank);
      }
    }
    for (const int other : entry.ejected) {
      entry.penalty += At(penalties_, other);
    }
    if (entry.penalty < best.penalty && WouldFit(bundle, entry.placement, entry.ejected)) {
      best = std::move(entry);
    }
    return steps_left_ <= 0;
  };
  placed_.places().ForEachOther(table, placed_.ledger(), kMaxCandidates, consider);
  return best;
}

// A bundle goes to another rank, or two change places.
void EjectionSearch::Shuffle() {
  for (int i = 0; i < kShuffles; ++i) {
    const int bundle = static_cast<int>(random_.Below(static_cast<std::uint64_t>(placed_.size())));
    const int rank =
        static_cast<int>(random_.Below(static_cast<std::uint64_t>(rules_.num_ranks())));
    if (!placed_.CanBeOnOneRank(bundle) || !placed_.placed(bundle)) continue;
    const std::vector<Shard>& shards = placed_.ledger().of(tables_of(bundle).front()).shards;
    const int from = shards.front().rank;
    if (from == rank || shards.size() > 1) continue;
    --steps_left_;
    const BundlePlacement before = placed_.Take(bundle);
    const BundlePlacement there = placed_.OnRank(bundle, rank);
    if (placed_.Put(bundle, there)) continue;
    const std::vector<int> others = placed_.BundlesOn(rank);
    const int other = others.empty() ? -1 : others[random_.Below(others.size())];
    const bool swapped =
        other >= 0 && placed_.CanBeOnOneRank(other) && PutInstead(bundle, there, {other}, [&] {
          return placed_.Put(other, placed_.OnRank(other, from));
        });
    if (!swapped) placed_.Put(bundle, before);
  }
}

bool EjectionSearch::PlaceByEjecting(std::vector<int> waiting) {
  std::ranges::sort(waiting, std::greater());  // the largest at the end
  while (!waiting.empty()) {
    if (steps_left_ <= 0 || stop_.ShouldStop()) return false;
    const int bundle = waiting.back();
    --steps_left_;
    if (PutSomewhere(bundle)) {
      waiting.pop_back();
      continue;
    }
    ++At(penalties_, bundle);
    const Entry entry = CheapestEntry(bundle);
    if (entry.placement.empty()) {
      std::rotate(waiting.begin(), waiting.end() - 1, waiting.end());
    } else {
      waiting.pop_back();
      for (const int other : entry.ejected) {
        placed_.Take(other);
        waiting.push_back(other);
      }
      placed_.Put(bundle, entry.placement);
    }
    if (!request_.migration.has_value()) Shuffle();
  }
  return true;
}

bool EjectionSearch::PlaceByTrying(std::vector<int> waiting, int ejections) {
  std::ranges::sort(waiting, std::greater());
  return TryWaiting(waiting, ejections);
}

bool EjectionSearch::TryWaiting(std::vector<int>& waiting, int ejections) {
  if (waiting.empty()) return true;
  if (steps_left_ <= 0 || stop_.ShouldStop()) return false;
  const int bundle = waiting.back();
  waiting.pop_back();
  const std::vector<BundlePlacement> all = CandidatesFor(bundle, kMaxCandidates);
  for (const BundlePlacement& placement : all) {
    if (--steps_left_ <= 0) break;
    if (!placed_.Put(bundle, placement)) continue;
    if (TryWaiting(waiting, ejections)) return true;
    placed_.Take(bundle);
  }
  const auto try_without = [&](const std::vector<int>& ejected, const BundlePlacement& placement) {
    if (--steps_left_ <= 0) return false;
    return PutInstead(bundle, placement, ejected, [&] {
      const std::size_t count = waiting.size();
      waiting.insert(waiting.end(), ejected.begin(), ejected.end());
      if (TryWaiting(waiting, ejections - static_cast<int>(ejected.size()))) return true;
      waiting.resize(count);
      return false;
    });
  };
  for (const BundlePlacement& placement : all) {
    if (ejections == 0) break;
    const std::vector<int> by_rule = InTheWay(bundle, placement);
    if (!by_rule.empty()) {
      if (static_cast<int>(by_rule.size()) <= ejections && try_without(by_rule, placement))
        return true;
      continue;
    }
    std::vector<int> others;
    for (const PlacedTable& placed_table : placement) {
      for (const Shard& shard : placed_table.shards) {
        for (const int other : placed_.BundlesOn(shard.rank)) AddOnce(other, others);
      }
    }
    for (const int other : others) {
      if (try_without({other}, placement)) return true;
    }
  }
  waiting.push_back(bundle);
  return false;
}

}  // namespace neuroshard
