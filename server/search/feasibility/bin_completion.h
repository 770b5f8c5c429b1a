// Packings with next to no room to spare, found or excluded by what fills each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/stop_signal.h"

namespace neuroshard {

// What goes to one rank as a whole.
struct PackedThing {
  std::int64_t bytes = 0;
  int tables = 1;
  int shards = 1;
};

struct PackingTask {
  std::vector<PackedThing> things;        // 128 at most
  std::vector<std::int64_t> room;         // bytes, by rank
  std::vector<std::vector<bool>> allows;  // [rank][thing]
  std::vector<std::vector<int>> apart;    // things of which no two share a rank
  int most_tables = 0;                    // of a rank
  int most_shards = 0;
  bool alike = false;  // ranks with equal room that allow the same things are the same to everybody
};

// Bin completion (Korf 2003; Fukunaga and Korf 2007): all sets of things that fill a rank but for
// what may stay free in all are listed by meeting in the middle, and the rank or the thing with the
// fewest is decided first. What is known of a rank is only narrowed from then on. The less is to
// spare, the fewer the sets: exact fits of 60 things take milliseconds, 1 % to spare is out of
// reach.
class BinCompletion {
 public:
  static constexpr std::size_t kMaxThings = 128;

  // For everything that the task does not say. May the rank be filled with these things, beside
  // what was filled before? If so, they count as placed until Undo of that rank, which comes in the
  // opposite order.
  struct Filler {
    std::function<bool(int rank, const std::vector<int>& things)> fill;
    std::function<void(int rank, const std::vector<int>& things)> undo;
  };

  // All must outlive it.
  BinCompletion(const PackingTask& task, const Filler& filler, const StopSignal& stop);

  enum class Answer { kPacked, kNone, kUnknown };
  // kPacked: everything is filled. kNone: all was tried. kUnknown: `effort`, about nanoseconds,
  // was used up, or ranks can be filled in too many ways.
  Answer Run(std::int64_t effort);

 private:
  using Set = unsigned __int128;  // of things
  struct State {
    Set left = 0;               // things
    std::vector<int> ranks;     // not filled yet
    std::int64_t to_spare = 0;  // bytes that may stay free
    // By place in `ranks`: all sets that fill the rank; nothing: too many to list.
    std::vector<std::optional<std::vector<Set>>> sets;
  };
  // What is decided at a state: each of these is a way to go on.
  struct Branch {
    std::vector<std::pair<std::size_t, Set>> ways;  // place in `ranks`, set
    bool all = true;                                // there is no other way
  };

  bool Search(State state);
  State Next(const State& state, std::size_t at, Set set);
  Branch Choose(State& state);
  // Sets of `left` things that fill the rank, with `with` among them; nothing: too many.
  std::optional<std::vector<Set>> SetsFor(int rank, Set left, std::int64_t to_spare, Set with);
  struct Part {
    std::int64_t bytes;
    Set set;
    int tables;
    int shards;
  };
  // Subsets of the things beside `base` within the room, in ascending bytes; false: too many.
  bool ListParts(const std::vector<int>& things, std::int64_t room, const Part& base,
                 std::vector<Part>& parts);
  // What may be on the rank beside `with`, in two halves.
  struct Halves {
    Part base{0, 0, 0, 0};
    std::vector<int> things[2];
  };
  Halves HalvesOf(int rank, Set left, Set with) const;
  // How many parts SetsFor would list, about.
  double EstimateSets(int rank, Set left, Set with);
  bool Same(int a, int b) const;
  bool IsTired();

  const PackingTask& task_;
  const Filler& filler_;
  const StopSignal& stop_;
  std::vector<Set> allowed_;                   // by rank
  std::vector<Set> apart_from_;                // by thing
  std::vector<int> order_;                     // things in descending bytes
  std::vector<Part> first_, second_, before_;  // of one listing, kept for their memory
  std::int64_t effort_left_ = 0;
  bool complete_ = true;  // nothing was left out so far
};

}  // namespace neuroshard
