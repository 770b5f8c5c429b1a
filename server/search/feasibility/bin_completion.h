// Packings with hardly any free room, found or excluded by the sets of items that fill each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/stop_signal.h"

namespace neuroshard {

// Tables that go to one rank together.
struct PackingItem {
  std::int64_t bytes = 0;
  int tables = 1;
  int shards = 1;
};

struct PackingTask {
  std::vector<PackingItem> items;         // 128 at most
  std::vector<std::int64_t> room;         // bytes, by rank
  std::vector<std::vector<bool>> allows;  // [rank][item]
  std::vector<std::vector<int>> apart;    // items of which no two share a rank
  int max_tables = 0;                     // of a rank
  int max_shards = 0;
  bool alike = false;  // ranks with equal room that allow the same items are interchangeable
};

// Bin completion (Korf 2003; Fukunaga and Korf 2007). For each rank, meeting in the middle lists
// all sets of items that fill it but for what may stay free in all; the search branches on the rank
// or the item with the fewest sets, and sets are only narrowed from then on. The less room is free,
// the fewer the sets: exact fits of 60 items take milliseconds, 1 % of free room is out of reach.
// For one thread.
class BinCompletion {
 public:
  static constexpr std::size_t kMaxItems = 128;

  // Conditions beyond the task. `fill` returns whether the rank may hold these items, beside those
  // of the filled ranks; if so, they count as placed until `undo` of that rank, in the opposite
  // order.
  struct Filler {
    std::function<bool(int rank, const std::vector<int>& items)> fill;
    std::function<void(int rank, const std::vector<int>& items)> undo;
  };

  // All arguments must outlive it.
  BinCompletion(const PackingTask& task, const Filler& filler, const StopSignal& stop);

  enum class Answer { kPacked, kNone, kUnknown };
  // Returns kPacked when everything is placed; kNone when all was tried; kUnknown when `effort`,
  // about nanoseconds, was used up, or ranks can be filled by too many sets.
  Answer Run(std::int64_t effort);

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

  bool Search(State state);
  State Next(const State& state, std::size_t at, Set set);
  Branch Choose(State& state);
  // Returns the sets of `left` items that fill the rank and contain `with`; nothing: too many.
  std::optional<std::vector<Set>> SetsFor(int rank, Set left, std::int64_t to_spare, Set with);
  struct Part {
    std::int64_t bytes;
    Set set;
    int tables;
    int shards;
  };
  // Lists subsets of the items beside `base` within the room, in ascending bytes; false: too many.
  bool ListParts(const std::vector<int>& items, std::int64_t room, const Part& base,
                 std::vector<Part>& parts);
  // Items that may be on the rank beside `with`, in two halves.
  struct Halves {
    Part base{0, 0, 0, 0};
    std::vector<int> items[2];
  };
  Halves HalvesOf(int rank, Set left, Set with) const;
  // Returns about how many parts SetsFor would list.
  double EstimateSets(int rank, Set left, Set with);
  bool Same(int a, int b) const;
  bool IsExhausted();

  const PackingTask& task_;
  const Filler& filler_;
  const StopSignal& stop_;
  std::vector<Set> allowed_;                   // by rank
  std::vector<Set> apart_from_;                // by item
  std::vector<int> order_;                     // items in descending bytes
  std::vector<Part> first_, second_, before_;  // of one listing, kept for their memory
  std::int64_t effort_left_ = 0;
  bool complete_ = true;  // nothing was left out so far
};

}  // namespace neuroshard
