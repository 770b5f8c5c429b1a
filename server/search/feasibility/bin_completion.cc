#include "server/search/feasibility/bin_completion.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

// Bundles that a set has bits for.
constexpr int kMaxBundles = 128;
// Sets that half of the items may have before a rank's sets are too many to list, and sets of a
// rank that are listed.
constexpr std::size_t kMaxParts = 1 << 18;
constexpr std::size_t kMaxSets = 4096;
// Pairs of parts that are looked at for a set, for each part.
constexpr std::size_t kMaxPairsPerPart = 4;
// Largest items that may be the one to decide.
constexpr int kMaxDecided = 3;
// Nanoseconds of listing a part, of looking at a pair of them, at a set, and of anything else at a
// state or a rank.
constexpr std::int64_t kPartEffort = 12;
constexpr std::int64_t kPairEffort = 10;
constexpr std::int64_t kSetEffort = 8;
constexpr std::int64_t kStateEffort = 10'000;

// A listing takes no more parts than this, for each way of the branch that it may save.
constexpr double kPartsPerBranch = 2000;

// Parts between two looks at the stop.
constexpr std::size_t kPollEvery = 4096;

int CountOf(unsigned __int128 set) {
  return std::popcount(static_cast<std::uint64_t>(set)) +
         std::popcount(static_cast<std::uint64_t>(set >> 64));
}

// Bin completion (Korf 2003; Fukunaga and Korf 2007) of bundles, the items. For each rank, meeting
// in the middle lists all sets of items that fill it but for what may stay free in all; the search
// branches on the rank or the item with the fewest sets, and sets are only narrowed from then on.
class BinCompletion {
 public:
  BinCompletion(const PlanRequest& request, const CompiledRules& rules, PlacedBundles& placed,
                const StopSignal& stop)
      : placed_(placed),
        stop_(stop),
        max_tables_(rules.max_tables_per_rank()),
        max_shards_(rules.max_shards_per_rank()),
        alike_(rules.host_groups().empty() && !request.migration.has_value()) {
    for (int rank = 0; rank < rules.num_ranks(); ++rank) {
      room_.push_back(placed.ledger().left_bytes(rank));
    }
    allowed_.resize(room_.size());
    for (int b = 0; b < placed.size(); ++b) {
      Item& item = items_.emplace_back();
      item.bytes = placed.BytesOnOneRank(b);
      item.tables = static_cast<int>(placed.tables_of(b).size());
      for (const PlacedTable& table : placed.OnRank(b, 0)) {
        item.shards += static_cast<int>(table.shards.size());
      }
      for (const int rank : placed.ranks_of(b)) At(allowed_, rank) |= Set{1} << b;
    }
    for (const TableGroup& group : rules.separate_groups()) {
      if (group.level == GroupLevel::kHost) {
        alike_ = false;
        continue;
      }
      for (const int a : group.tables) {
        for (const int b : group.tables) {
          const int item = placed.bundle_of(a);
          const int other = placed.bundle_of(b);
          if (item != other) At(items_, item).apart |= Set{1} << other;
        }
      }
    }
    order_ = PositionsDescending<int>(items_.size(), [&](int i) { return At(items_, i).bytes; });
  }

  BinAnswer Run(std::int64_t effort) {
    effort_left_ = effort;
    complete_ = true;
    State root;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      root.left |= Set{1} << i;
      root.to_spare -= items_[i].bytes;
    }
    root.ranks = Positions<int>(room_.size());
    for (const int rank : root.ranks) root.to_spare += RoomOf(rank);
    if (root.to_spare < 0) return BinAnswer::kNone;
    root.sets.resize(root.ranks.size());
    if (Search(std::move(root))) return BinAnswer::kPacked;
    return complete_ ? BinAnswer::kNone : BinAnswer::kUnknown;
  }

 private:
  using Set = unsigned __int128;  // of items
  struct Item {
    std::int64_t bytes = 0;
    int tables = 0;
    int shards = 0;
    Set apart = 0;  // items of which none may be on its rank
  };
  struct State {
    Set left = 0;               // items
    std::vector<int> ranks;     // not filled yet
    std::int64_t to_spare = 0;  // bytes that may stay free
    // Sets that fill each of `ranks`, by position; nothing: too many to list.
    std::vector<std::optional<std::vector<Set>>> sets;
  };
  // Alternatives at a state.
  struct Branch {
    std::vector<std::pair<std::size_t, Set>> choices;  // place in `ranks`, set
    bool all = true;                                   // there is no other way
  };

  struct Part {
    std::int64_t bytes;
    Set set;
    int tables;
    int shards;
  };
  // Items that may be on the rank beside `with`, in two halves.
  struct Halves {
    Part base{0, 0, 0, 0};
    std::vector<int> items[2];
  };

  std::int64_t RoomOf(int rank) const { return std::max<std::int64_t>(0, At(room_, rank)); }

  bool IsExhausted() {
    if (effort_left_ > 0 && !stop_.ShouldStop()) return false;
    complete_ = false;
    return true;
  }

  // Whether the two ranks may be filled alike.
  bool Same(int a, int b) const {
    return alike_ && At(room_, a) == At(room_, b) && At(allowed_, a) == At(allowed_, b);
  }

  bool Search(State state) {
    if (state.left == 0) return true;
    effort_left_ -= kStateEffort;
    if (IsExhausted()) return false;
    const Branch branch = Choose(state);
    if (!branch.all) complete_ = false;
    for (const auto& [at, set] : branch.choices) {
      if (IsExhausted()) return false;
      const int rank = state.ranks[at];
      std::vector<int> items;
      for (int i = 0; i < placed_.size(); ++i) {
        if ((set >> i & 1) != 0) items.push_back(i);
      }
      if (!Fill(rank, items)) continue;
      if (Search(Next(state, at, set))) return true;
      for (const int item : items) placed_.Take(item);
    }
    return false;
  }

  // Puts the items on the rank if all may be there beside those on other ranks, else none.
  bool Fill(int rank, const std::vector<int>& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (placed_.Put(items[i], placed_.OnRank(items[i], rank))) continue;
      while (i-- > 0) placed_.Take(items[i]);
      return false;
    }
    return true;
  }

  State Next(const State& state, std::size_t at, Set set) {
    State next;
    next.left = state.left & ~set;
    next.to_spare = state.to_spare - RoomOf(state.ranks[at]);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if ((set >> i & 1) != 0) next.to_spare += items_[i].bytes;
    }
    for (std::size_t i = 0; i < state.ranks.size(); ++i) {
      if (i == at) continue;
      next.ranks.push_back(state.ranks[i]);
      auto& sets = next.sets.emplace_back();
      if (!state.sets[i].has_value()) continue;
      sets.emplace();
      effort_left_ -= kSetEffort * static_cast<std::int64_t>(state.sets[i]->size());
      for (const Set other : *state.sets[i]) {
        if ((other & set) == 0) sets->push_back(other);
      }
    }
    return next;
  }

  Branch Choose(State& state) {
    Branch best;
    std::size_t fewest = kMaxSets + 1;  // choices of `best`
    const auto take = [&](Branch branch) {
      if (branch.choices.size() >= fewest) return;
      fewest = branch.choices.size();
      best = std::move(branch);
    };
    // Ranks that are listed, then those that are quick to list, as long as that may save more than
    // it takes.
    std::vector<std::pair<double, std::size_t>> unlisted;
    const auto offer = [&](std::size_t i) {
      const std::vector<Set>& sets = *state.sets[i];
      effort_left_ -= kSetEffort * static_cast<std::int64_t>(sets.size());
      if (sets.size() >= fewest) return;
      Branch branch;
      for (const Set set : sets) branch.choices.emplace_back(i, set);
      take(std::move(branch));
    };
    for (std::size_t i = 0; i < state.ranks.size() && fewest > 0; ++i) {
      if (state.sets[i].has_value()) {
        offer(i);
      } else {
        unlisted.emplace_back(EstimateSets(state.ranks[i], state.left, 0), i);
      }
    }
    std::ranges::sort(unlisted);
    for (const auto& [parts, i] : unlisted) {
      if (fewest <= 1 || parts > kPartsPerBranch * static_cast<double>(fewest)) {
        break;
      }
      state.sets[i] = SetsFor(state.ranks[i], state.left, state.to_spare, 0);
      if (state.sets[i].has_value()) offer(i);
    }
    // The largest items: all sets of all ranks with one of them.
    int decided = 0;
    for (const int item : order_) {
      const Set with = Set{1} << item;
      if ((state.left & with) == 0) continue;
      if (++decided > kMaxDecided || fewest <= 1) break;
      Branch branch;
      for (std::size_t i = 0; i < state.ranks.size() && branch.all; ++i) {
        const int rank = state.ranks[i];
        const bool seen =
            std::any_of(state.ranks.begin(), state.ranks.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](int before) { return Same(before, rank); });
        if (seen) continue;
        std::optional<std::vector<Set>> sets;
        if (state.sets[i].has_value()) {
          sets.emplace();
          for (const Set set : *state.sets[i]) {
            if ((set & with) != 0) sets->push_back(set);
          }
        } else if (EstimateSets(rank, state.left, with) <=
                   kPartsPerBranch * static_cast<double>(fewest)) {
          sets = SetsFor(rank, state.left, state.to_spare, with);
        }
        if (!sets.has_value() || branch.choices.size() + sets->size() >= fewest) {
          branch.all = false;
          break;
        }
        for (const Set set : *sets) branch.choices.emplace_back(i, set);
      }
      if (branch.all) take(std::move(branch));
    }
    if (fewest > kMaxSets) best.all = false;
    // There are more false sets the more items they have.
    std::ranges::stable_sort(best.choices, [](const auto& a, const auto& b) {
      return CountOf(a.second) < CountOf(b.second);
    });
    return best;
  }

  Halves HalvesOf(int rank, Set left, Set with) const {
    const std::int64_t room = At(room_, rank);
    Halves halves;
    std::size_t next = 0;
    for (const int item : order_) {
      const Set bit = Set{1} << item;
      const Item& of = At(items_, item);
      if ((left & At(allowed_, rank) & bit) == 0 || of.bytes > room) continue;
      if ((with & bit) != 0) {
        halves.base = {of.bytes, bit, of.tables, of.shards};
      } else {
        halves.items[next++ % 2].push_back(item);
      }
    }
    return halves;
  }

  // Returns about how many parts SetsFor would list.
  // Subsets of both halves within the room, sizes rounded down to a 64th of it.
  double EstimateSets(int rank, Set left, Set with) {
    constexpr std::size_t kUnits = 64;
    constexpr std::size_t kMaxCounted = 8;
    effort_left_ -= kStateEffort;
    const Halves halves = HalvesOf(rank, left, with);
    const std::int64_t room = At(room_, rank) - halves.base.bytes;
    const bool counts = static_cast<std::size_t>(max_tables_) <= kMaxCounted;
    const std::size_t most = counts ? static_cast<std::size_t>(max_tables_) : 0;
    double parts = 0;
    for (const std::vector<int>& half : halves.items) {
      std::vector<double> subsets((most + 1) * (kUnits + 1), 0);
      subsets[0] = 1;
      for (const int item : half) {
        const double bytes = static_cast<double>(At(items_, item).bytes);
        const double units = bytes / (static_cast<double>(room) + 1) * kUnits;
        if (units > kUnits) continue;
        const auto size = static_cast<std::size_t>(units);
        for (std::size_t n = most + 1; n-- > 0;) {
          const std::size_t to = counts ? n + 1 : 0;
          if (to > most) continue;
          for (std::size_t s = kUnits + 1; s-- > size;) {
            subsets[to * (kUnits + 1) + s] += subsets[n * (kUnits + 1) + s - size];
          }
        }
      }
      parts += std::accumulate(subsets.begin(), subsets.end(), 0.0);
    }
    return parts;
  }

  // Lists subsets of the items beside `base` within the room, in ascending bytes; false: too many.
  bool ListParts(const std::vector<int>& items, std::int64_t room, const Part& base,
                 std::vector<Part>& parts) {
    parts.assign(1, base);
    std::vector<Part>& before = before_;
    for (const int item : items) {
      const Item& of = At(items_, item);
      const Set bit = Set{1} << item;
      before.swap(parts);
      parts.clear();
      effort_left_ -= kPartEffort * static_cast<std::int64_t>(before.size());
      // Without the item and with it, in ascending bytes.
      std::size_t without = 0;
      for (const Part& part : before) {
        if (part.bytes + of.bytes > room) break;
        if (part.tables + of.tables > max_tables_ || part.shards + of.shards > max_shards_ ||
            (part.set & of.apart) != 0) {
          continue;
        }
        for (; without < before.size() && before[without].bytes <= part.bytes + of.bytes;
             ++without) {
          parts.push_back(before[without]);
        }
        parts.push_back({part.bytes + of.bytes, part.set | bit, part.tables + of.tables,
                         part.shards + of.shards});
      }
      parts.insert(parts.end(), before.begin() + static_cast<std::ptrdiff_t>(without),
                   before.end());
      if (parts.size() > kMaxParts || effort_left_ < 0 || stop_.ShouldStop()) return false;
    }
    return true;
  }

  // Returns the sets of `left` items that fill the rank and contain `with`; nothing: too many.
  std::optional<std::vector<Set>> SetsFor(int rank, Set left, std::int64_t to_spare, Set with) {
    const std::int64_t room = RoomOf(rank);
    const Halves halves = HalvesOf(rank, left, with);
    const Part& base = halves.base;
    if (base.set != with || base.tables > max_tables_ || base.shards > max_shards_) {
      return std::vector<Set>{};
    }
    std::vector<Part>& first = first_;
    std::vector<Part>& second = second_;
    if (!ListParts(halves.items[0], room, base, first) ||
        !ListParts(halves.items[1], room - base.bytes, {0, 0, 0, 0}, second)) {
      return std::nullopt;
    }
    // Ascending in the first, so that what fits in the second falls.
    std::vector<Set> sets;
    std::size_t end = second.size();
    std::size_t pairs = 0;
    const std::size_t max_pairs = kMaxPairsPerPart * (first.size() + second.size());
    for (std::size_t f = 0; f < first.size(); ++f) {
      const Part& part = first[f];
      if (f % kPollEvery == 0 && stop_.ShouldStop()) return std::nullopt;
      while (end > 0 && part.bytes + second[end - 1].bytes > room) --end;
      for (std::size_t p = end; p-- > 0 && pairs <= max_pairs && sets.size() <= kMaxSets; ++pairs) {
        const Part& other = second[p];
        if (part.bytes + other.bytes < room - to_spare) break;
        if (part.tables + other.tables > max_tables_ || part.shards + other.shards > max_shards_) {
          continue;
        }
        bool together = true;
        for (Set rest = part.set; rest != 0 && together; rest &= rest - 1) {
          const std::uint64_t low = static_cast<std::uint64_t>(rest);
          const int item = low != 0 ? std::countr_zero(low)
                                    : 64 + std::countr_zero(static_cast<std::uint64_t>(rest >> 64));
          together = (At(items_, item).apart & other.set) == 0;
        }
        if (together) sets.push_back(part.set | other.set);
      }
    }
    effort_left_ -= kPairEffort * static_cast<std::int64_t>(pairs + first.size() + second.size());
    if (pairs > max_pairs || sets.size() > kMaxSets) return std::nullopt;
    return sets;
  }

  PlacedBundles& placed_;
  const StopSignal& stop_;
  const int max_tables_;  // of a rank
  const int max_shards_;
  bool alike_;  // ranks with equal room that allow the same items are interchangeable
  std::vector<Item> items_;
  std::vector<std::int64_t> room_;             // by rank; below 0 where the reserve is too large
  std::vector<Set> allowed_;                   // by rank
  std::vector<int> order_;                     // items in descending bytes
  std::vector<Part> first_, second_, before_;  // of one listing, kept for their memory
  std::int64_t effort_left_ = 0;
  bool complete_ = true;  // nothing was left out so far
};

}  // namespace

BinAnswer CompleteBins(const PlanRequest& request, const CompiledRules& rules,
                       PlacedBundles& placed, const StopSignal& stop, std::int64_t effort) {
  const std::vector<int> all = Positions<int>(static_cast<std::size_t>(placed.size()));
  if (placed.size() > kMaxBundles ||
      !std::ranges::all_of(all, [&](int bundle) { return placed.CanBeOnOneRank(bundle); })) {
    return BinAnswer::kUnknown;
  }
  for (const int bundle : all) {
    if (placed.placed(bundle)) placed.Take(bundle);
  }
  return BinCompletion(request, rules, placed, stop).Run(effort);
}

}  // namespace neuroshard
