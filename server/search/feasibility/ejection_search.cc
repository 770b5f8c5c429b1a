#include "server/search/feasibility/ejection_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/positions.h"
#include "common/domain/memory_use.h"
#include "server/search/placement/placement.h"

namespace neuroshard {
namespace {

// Bundles that one may eject at a time, besides those that rules name.
constexpr std::size_t kMaxEjected = 3;
// Sets of bundles that are looked at in the time of a step.
constexpr int kLooksOfAStep = 8;
// Random changes after each ejection.
constexpr int kShuffles = 10;
// BundlePlacement to place the parts of a table that are looked at one by one.
constexpr std::size_t kMaxCandidates = 64;

void AddOnce(int value, std::vector<int>& values) {
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

bool Contains(const std::vector<int>& values, int value) {
  return std::ranges::find(values, value) != values.end();
}

// Those that have a shard, ascending.
std::vector<int> RanksOf(const std::vector<Shard>& shards) {
  std::vector<int> ranks = Mapped<int>(shards, &Shard::rank);
  SortUnique(ranks);
  return ranks;
}

}  // namespace

EjectionSearch::EjectionSearch(const PlanRequest& request, const CompiledRules& rules,
                               const StopSignal& stop)
    : request_(request),
      rules_(rules),
      stop_(stop),
      places_(request, rules),
      previous_(request),
      ledger_(request, rules),
      tables_on_(request.topology.devices.size()),
      random_(request.search.seed.value_or(0)),
      homes_(request.tables.size()) {
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const int table = static_cast<int>(t);
    const int group = rules.of(table).rank_group;
    if (group < 0) {
      bundles_.push_back({table});
    } else if (At(rules.rank_groups(), group).front() == table) {
      bundles_.push_back(At(rules.rank_groups(), group));
    }
  }
  const std::vector<std::int64_t> bytes_of = WholeBytes(request);
  const auto whole_bytes = [&](const std::vector<int>& tables) {
    double bytes = 0;
    for (const int table : tables) {
      bytes += static_cast<double>(At(bytes_of, table));
    }
    return bytes;
  };
  std::ranges::stable_sort(
      bundles_, [&](const auto& a, const auto& b) { return whole_bytes(a) > whole_bytes(b); });
  bundle_of_.resize(request.tables.size());
  penalties_.assign(bundles_.size(), 1);
  for (std::size_t b = 0; b < bundles_.size(); ++b) {
    const int bundle = static_cast<int>(b);
    for (const int table : bundles_[b]) At(bundle_of_, table) = bundle;
    const std::vector<int>& ranks = rules.of(bundles_[b].front()).ranks->ranks();
    BundlePlacement placement;
    std::int64_t bytes = 0;
    for (const int table : bundles_[b]) {
      placement.push_back(ranks.empty() ? PlacedTable{} : places_.OnRank(table, ranks.front()));
      if (!placement.back().placed()) {
        placement.clear();
        break;
      }
      for (const Shard& shard : placement.back().shards) {
        bytes += ShardBytes(table, placement.back(), shard);
      }
    }
    on_rank_.push_back(std::move(placement));
    on_rank_bytes_.push_back(bytes);
  }
}

bool EjectionSearch::placed(int bundle) const {
  return ledger_.of(tables_of(bundle).front()).placed();
}

bool EjectionSearch::Put(int bundle, const BundlePlacement& placement) {
  const std::vector<int>& tables = tables_of(bundle);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto& [layout, shards] = placement[i];
    if (ledger_.Put(tables[i], layout, shards) == PlacementLedger::Answer::kYes) {
      for (const int rank : RanksOf(shards)) {
        At(tables_on_, rank).push_back(tables[i]);
      }
      continue;
    }
    while (i-- > 0) TakeTable(tables[i]);
    return false;
  }
  return true;
}

PlacedTable EjectionSearch::TakeTable(int table) {
  PlacedTable placed_table = ledger_.Take(table);
  for (const int rank : RanksOf(placed_table.shards)) {
    std::erase(At(tables_on_, rank), table);
  }
  return placed_table;
}

EjectionSearch::BundlePlacement EjectionSearch::Take(int bundle) {
  BundlePlacement placement;
  for (const int table : tables_of(bundle)) placement.push_back(TakeTable(table));
  return placement;
}

std::int64_t EjectionSearch::ShardBytes(int table, const PlacedTable& placed_table,
                                        const Shard& shard) const {
  return ShardMemory(request_, At(request_.tables, table), placed_table.layout, shard.rows,
                     shard.cols)
      .total_bytes();
}

std::int64_t EjectionSearch::MovedBytes(int bundle, const BundlePlacement& placement) const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < placement.size(); ++i) {
    for (const Shard& shard : placement[i].shards) {
      bytes += previous_.MovedBytes(tables_of(bundle)[i], placement[i].layout.kernel, shard);
    }
  }
  return bytes;
}

EjectionSearch::BundlePlacement EjectionSearch::OnRank(int bundle, int rank) const {
  BundlePlacement placement = At(on_rank_, bundle);
  for (PlacedTable& placed_table : placement) {
    for (Shard& shard : placed_table.shards) shard.rank = rank;
  }
  return placement;
}

std::int64_t EjectionSearch::BytesOn(int bundle, int rank) const {
  std::int64_t bytes = 0;
  bool on_one_rank = true;
  for (const int table : tables_of(bundle)) {
    on_one_rank = on_one_rank && ledger_.of(table).shards.size() == 1;
    if (on_one_rank) continue;
    for (const Shard& shard : ledger_.of(table).shards) {
      if (shard.rank == rank) bytes += ShardBytes(table, ledger_.of(table), shard);
    }
  }
  return on_one_rank ? At(on_rank_bytes_, bundle) : bytes;
}

std::vector<int> EjectionSearch::BundlesOn(int rank) const {
  std::vector<int> bundles;
  for (const int table : At(tables_on_, rank)) AddOnce(bundle_of(table), bundles);
  return bundles;
}

std::vector<int> EjectionSearch::InTheWay(int bundle, int rank) const {
  std::vector<int> bundles;
  for (const int table : tables_of(bundle)) AddInTheWay(table, rank, bundles);
  std::erase(bundles, bundle);
  return bundles;
}

void EjectionSearch::AddInTheWay(int table, int rank, std::vector<int>& bundles) const {
  const TableRules& of = rules_.of(table);
  const int host = rules_.host_of(rank);
  const auto add_if = [&](int other, const auto& is_in_the_way) {
    const std::vector<Shard>& shards = ledger_.of(other).shards;
    if (other != table && std::ranges::any_of(shards, is_in_the_way)) {
      AddOnce(bundle_of(other), bundles);
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

std::vector<EjectionSearch::BundlePlacement> EjectionSearch::CandidatesFor(int bundle,
                                                                           std::size_t most) const {
  std::vector<std::pair<std::pair<std::int64_t, std::int64_t>, BundlePlacement>> all;
  const auto add = [&](BundlePlacement placement, std::int64_t left) {
    const std::int64_t moved = MovedBytes(bundle, placement);
    all.emplace_back(std::pair(moved, -left), std::move(placement));
  };
  const int table = tables_of(bundle).front();
  for (const int rank : rules_.of(table).ranks->ranks()) {
    if (BundlePlacement placement = OnRank(bundle, rank); !placement.empty()) {
      add(std::move(placement), ledger_.left_bytes(rank));
    }
  }
  if (tables_of(bundle).size() == 1) {
    const auto add_placed = [&](const PlacedTable& placed_table) {
      std::int64_t left = std::numeric_limits<std::int64_t>::max();
      for (const Shard& shard : placed_table.shards) {
        left = std::min(left, ledger_.left_bytes(shard.rank));
      }
      add({placed_table}, left);
      return false;
    };
    if (home(table).placed()) add_placed(home(table));
    places_.ForEachShift(table, home(table), add_placed);
    places_.ForEachOther(table, ledger_, most, add_placed);
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
    return Put(bundle, placement);
  };
  const std::vector<int>& tables = tables_of(bundle);
  if (std::ranges::any_of(tables, [&](int t) { return previous_.Has(t); })) {
    const std::vector<BundlePlacement> all = CandidatesFor(bundle, 1);
    return std::ranges::any_of(all, put);
  }
  if (!At(on_rank_, bundle).empty()) {
    std::vector<std::pair<std::int64_t, int>> ranks;
    for (const int rank : rules_.of(tables.front()).ranks->ranks()) {
      const std::int64_t left = ledger_.left_bytes(rank);
      if (left >= At(on_rank_bytes_, bundle)) ranks.push_back({left, rank});
    }
    std::ranges::sort(ranks);
    steps_left_ -= rules_.num_ranks() / kLooksOfAStep;
    for (const auto& [left, rank] : ranks) {
      if (put(OnRank(bundle, rank))) return true;
    }
  }
  return tables.size() == 1 &&
         places_.ForEachOther(tables.front(), ledger_, 1,
                              [&](const PlacedTable& placed_table) { return put({placed_table}); });
}

bool EjectionSearch::WouldFit(int bundle, const BundlePlacement& placement,
                              const std::vector<int>& ejected) {
  --steps_left_;
  const std::vector<BundlePlacement> before =
      Mapped(ejected, [this](int other) { return Take(other); });
  const bool fits = Put(bundle, placement);
  if (fits) Take(bundle);
  for (std::size_t i = ejected.size(); i-- > 0;) Put(ejected[i], before[i]);
  return fits;
}

EjectionSearch::Entry EjectionSearch::CheapestEntry(int bundle) {
  Entry best;
  best.penalty = std::numeric_limits<std::int64_t>::max();
  std::uint64_t ties = 0;
  int looked = 0;
  const std::int64_t needed = At(on_rank_bytes_, bundle);
  if (At(on_rank_, bundle).empty()) return EntryByForce(bundle);
  for (const int rank : rules_.of(tables_of(bundle).front()).ranks->ranks()) {
    std::vector<int> ejected = InTheWay(bundle, rank);
    std::int64_t penalty = 0;
    std::int64_t room = ledger_.left_bytes(rank);
    for (const int other : ejected) {
      penalty += At(penalties_, other);
      room += BytesOn(other, rank);
    }
    struct Candidate {
      int bundle;
      std::int64_t penalty;
      std::int64_t bytes;
    };
    std::vector<Candidate> candidates;
    std::int64_t max_bytes = 0;
    for (const int other : BundlesOn(rank)) {
      if (Contains(ejected, other)) continue;
      candidates.push_back({other, At(penalties_, other), BytesOn(other, rank)});
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
        if ((!tie || random_.Below(ties + 1) == 0) &&
            WouldFit(bundle, OnRank(bundle, rank), ejected)) {
          ties = tie ? ties + 1 : 1;
          best = {OnRank(bundle, rank), ejected, penalty};
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
  best.penalty = std::numeric_limits<std::int64_t>::max();
  if (tables_of(bundle).size() > 1) return best;
  const int table = tables_of(bundle).front();
  places_.ForEachOther(table, ledger_, kMaxCandidates, [&](const PlacedTable& placed_table) {
    Entry entry;
    entry.placement = {placed_table};
    std::vector<std::pair<int, std::int64_t>> needed;  // by rank
    for (const Shard& shard : placed_table.shards) {
      const std::int64_t bytes = ShardBytes(table, placed_table, shard);
      const auto at =
          std::ranges::find_if(needed, [&](const auto& n) { return n.first == shard.rank; });
      if (at == needed.end()) {
        needed.emplace_back(shard.rank, bytes);
        AddInTheWay(table, shard.rank, entry.ejected);
      } else {
        at->second += bytes;
      }
    }
    std::erase(entry.ejected, bundle);
    for (const auto& [rank, bytes] : needed) {
      std::int64_t room = ledger_.left_bytes(rank);
      for (const int other : entry.ejected) room += BytesOn(other, rank);
      std::vector<int> others = BundlesOn(rank);
      random_.Shuffle(others);
      std::ranges::stable_sort(others,
                               [&](int a, int b) { return At(penalties_, a) < At(penalties_, b); });
      for (const int other : others) {
        if (room >= bytes) break;
        if (Contains(entry.ejected, other)) continue;
        entry.ejected.push_back(other);
        room += BytesOn(other, rank);
      }
    }
    for (const int other : entry.ejected) {
      entry.penalty += At(penalties_, other);
    }
    if (entry.penalty < best.penalty && WouldFit(bundle, entry.placement, entry.ejected)) {
      best = std::move(entry);
    }
    return steps_left_ <= 0;
  });
  return best;
}

// A bundle goes to another rank, or two change places.
void EjectionSearch::Shuffle() {
  for (int i = 0; i < kShuffles; ++i) {
    const int bundle = static_cast<int>(random_.Below(bundles_.size()));
    const std::size_t b = static_cast<std::size_t>(bundle);
    const int rank =
        static_cast<int>(random_.Below(static_cast<std::uint64_t>(rules_.num_ranks())));
    if (on_rank_[b].empty() || !placed(bundle)) continue;
    const std::vector<Shard>& shards = ledger_.of(tables_of(bundle).front()).shards;
    const int from = shards.front().rank;
    if (from == rank || shards.size() > 1) continue;
    --steps_left_;
    const BundlePlacement before = Take(bundle);
    if (Put(bundle, OnRank(bundle, rank))) continue;
    const std::vector<int> others = BundlesOn(rank);
    if (!others.empty()) {
      const int other = others[random_.Below(others.size())];
      if (!At(on_rank_, other).empty()) {
        const BundlePlacement of_other = Take(other);
        if (Put(bundle, OnRank(bundle, rank))) {
          if (Put(other, OnRank(other, from))) continue;
          Take(bundle);
        }
        Put(other, of_other);
      }
    }
    Put(bundle, before);
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
        Take(other);
        waiting.push_back(other);
      }
      Put(bundle, entry.placement);
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
  const int table = tables_of(bundle).front();
  waiting.pop_back();
  const std::vector<BundlePlacement> all = CandidatesFor(bundle, kMaxCandidates);
  for (const BundlePlacement& placement : all) {
    if (--steps_left_ <= 0) break;
    if (!Put(bundle, placement)) continue;
    if (TryWaiting(waiting, ejections)) return true;
    Take(bundle);
  }
  const auto try_without = [&](const std::vector<int>& ejected, const BundlePlacement& placement) {
    if (--steps_left_ <= 0) return false;
    const std::vector<BundlePlacement> before =
        Mapped(ejected, [this](int other) { return Take(other); });
    if (Put(bundle, placement)) {
      const std::size_t count = waiting.size();
      waiting.insert(waiting.end(), ejected.begin(), ejected.end());
      const int left = ejections - static_cast<int>(ejected.size());
      if (TryWaiting(waiting, left)) return true;
      waiting.resize(count);
      Take(bundle);
    }
    for (std::size_t i = ejected.size(); i-- > 0;) Put(ejected[i], before[i]);
    return false;
  };
  for (const BundlePlacement& placement : all) {
    if (ejections == 0) break;
    std::vector<int> by_rule;
    std::vector<int> others;
    for (const PlacedTable& placed_table : placement) {
      for (const Shard& shard : placed_table.shards) {
        AddInTheWay(table, shard.rank, by_rule);
        for (const int other : BundlesOn(shard.rank)) AddOnce(other, others);
      }
    }
    std::erase(by_rule, bundle);
    if (!by_rule.empty()) {
      if (static_cast<int>(by_rule.size()) <= ejections && try_without(by_rule, placement))
        return true;
      continue;
    }
    for (const int other : others) {
      if (try_without({other}, placement)) return true;
    }
  }
  waiting.push_back(bundle);
  return false;
}

}  // namespace neuroshard
