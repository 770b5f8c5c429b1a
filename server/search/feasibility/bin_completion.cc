#include "server/search/feasibility/bin_completion.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

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

// Bin completion (Korf 2003; Fukunaga and Korf 2007). For each rank, meeting in the middle lists
// all sets of items that fill it but for what may stay free in all; the search branches on the rank
// or the item with the fewest sets, and sets are only narrowed from then on.
class BinCompletion {
 public:
  BinCompletion(const PackingTask& task, const BinFiller& filler, const StopSignal& stop)
      : task_(task), filler_(filler), stop_(stop), apart_from_(task.items.size(), 0) {
    for (const std::vector<bool>& allows : task.allows) {
      Set set = 0;
      for (std::size_t i = 0; i < std::min(allows.size(), kMaxBinItems); ++i) {
        if (allows[i]) set |= Set{1} << i;
      }
      allowed_.push_back(set);
    }
    for (const std::vector<int>& group : task.apart) {
      for (const int a : group) {
        for (const int b : group) {
          if (a != b) At(apart_from_, a) |= Set{1} << b;
        }
      }
    }
    order_ = PositionsDescending<int>(task.items.size(),
                                      [&](int item) { return At(task.items, item).bytes; });
  }

  BinAnswer Run(std::int64_t effort) {
    if (task_.items.size() > kMaxBinItems) return BinAnswer::kUnknown;
    effort_left_ = effort;
    complete_ = true;
    State root;
    for (std::size_t i = 0; i < task_.items.size(); ++i) {
      root.left |= Set{1} << i;
      root.to_spare -= task_.items[i].bytes;
    }
    for (std::size_t r = 0; r < task_.room.size(); ++r) {
      root.ranks.push_back(static_cast<int>(r));
      root.to_spare += std::max<std::int64_t>(0, task_.room[r]);
    }
    if (root.to_spare < 0) return BinAnswer::kNone;
    root.sets.resize(root.ranks.size());
    if (Search(std::move(root))) return BinAnswer::kPacked;
    return complete_ ? BinAnswer::kNone : BinAnswer::kUnknown;
  }

 private:
  using Set = unsigned __int128;  // of items
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

  bool IsExhausted() {
    if (effort_left_ > 0 && !stop_.ShouldStop()) return false;
    complete_ = false;
    return true;
  }

  // Whether the two ranks may be filled alike.
  bool Same(int a, int b) const {
    const std::size_t i = static_cast<std::size_t>(a);
    const std::size_t j = static_cast<std::size_t>(b);
    return task_.alike && task_.room[i] == task_.room[j] && task_.allows[i] == task_.allows[j];
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
      for (std::size_t i = 0; i < task_.items.size(); ++i) {
        if ((set >> i & 1) != 0) items.push_back(static_cast<int>(i));
      }
      if (!filler_.fill(rank, items)) continue;
      if (Search(Next(state, at, set))) return true;
      filler_.undo(rank, items);
    }
    return false;
  }

  State Next(const State& state, std::size_t at, Set set) {
    State next;
    next.left = state.left & ~set;
    next.to_spare = state.to_spare - std::max<std::int64_t>(0, At(task_.room, state.ranks[at]));
    for (std::size_t i = 0; i < task_.items.size(); ++i) {
      if ((set >> i & 1) != 0) next.to_spare += task_.items[i].bytes;
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
    const std::int64_t room = At(task_.room, rank);
    Halves halves;
    std::size_t next = 0;
    for (const int item : order_) {
      const Set bit = Set{1} << item;
      const PackingItem& of = At(task_.items, item);
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
    const std::int64_t room = At(task_.room, rank) - halves.base.bytes;
    const bool counts = static_cast<std::size_t>(task_.max_tables) <= kMaxCounted;
    const std::size_t most = counts ? static_cast<std::size_t>(task_.max_tables) : 0;
    double parts = 0;
    for (const std::vector<int>& half : halves.items) {
      std::vector<double> subsets((most + 1) * (kUnits + 1), 0);
      subsets[0] = 1;
      for (const int item : half) {
        const double bytes = static_cast<double>(At(task_.items, item).bytes);
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
      const PackingItem& of = At(task_.items, item);
      const Set apart = At(apart_from_, item);
      const Set bit = Set{1} << item;
      before.swap(parts);
      parts.clear();
      effort_left_ -= kPartEffort * static_cast<std::int64_t>(before.size());
      // Without the item and with it, in ascending bytes.
      std::size_t without = 0;
      for (const Part& part : before) {
        if (part.bytes + of.bytes > room) break;
        if (part.tables + of.tables > task_.max_tables ||
            part.shards + of.shards > task_.max_shards || (part.set & apart) != 0) {
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
    const std::int64_t room = std::max<std::int64_t>(0, At(task_.room, rank));
    const Halves halves = HalvesOf(rank, left, with);
    const Part& base = halves.base;
    if (base.set != with || base.tables > task_.max_tables || base.shards > task_.max_shards) {
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
        if (part.tables + other.tables > task_.max_tables ||
            part.shards + other.shards > task_.max_shards) {
          continue;
        }
        bool together = true;
        for (Set rest = part.set; rest != 0 && together; rest &= rest - 1) {
          const std::uint64_t low = static_cast<std::uint64_t>(rest);
          const int item = low != 0 ? std::countr_zero(low)
                                    : 64 + std::countr_zero(static_cast<std::uint64_t>(rest >> 64));
          together = (At(apart_from_, item) & other.set) == 0;
        }
        if (together) sets.push_back(part.set | other.set);
      }
    }
    effort_left_ -= kPairEffort * static_cast<std::int64_t>(pairs + first.size() + second.size());
    if (pairs > max_pairs || sets.size() > kMaxSets) return std::nullopt;
    return sets;
  }

  const PackingTask& task_;
  const BinFiller& filler_;
  const StopSignal& stop_;
  std::vector<Set> allowed_;                   // by rank
  std::vector<Set> apart_from_;                // by item
  std::vector<int> order_;                     // items in descending bytes
  std::vector<Part> first_, second_, before_;  // of one listing, kept for their memory
  std::int64_t effort_left_ = 0;
  bool complete_ = true;  // nothing was left out so far
};

}  // namespace

BinAnswer CompleteBins(const PackingTask& task, const BinFiller& filler, const StopSignal& stop,
                       std::int64_t effort) {
  return BinCompletion(task, filler, stop).Run(effort);
}

}  // namespace neuroshard
