// Packings with hardly any free room, found or excluded by the sets of items that fill each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/stop_signal.h"

namespace neuroshard {

// Tables that go to one rank together.
struct PackingItem {
  std::int64_t bytes = 0;
  int tables = 1;
  int shards = 1;
};

inline constexpr std::size_t kMaxBinItems = 128;

struct PackingTask {
  std::vector<PackingItem> items;         // kMaxBinItems at most
  std::vector<std::int64_t> room;         // bytes, by rank
  std::vector<std::vector<bool>> allows;  // [rank][item]
  std::vector<std::vector<int>> apart;    // items of which no two share a rank
  int max_tables = 0;                     // of a rank
  int max_shards = 0;
  bool alike = false;  // ranks with equal room that allow the same items are interchangeable
};

// Conditions beyond the task. `fill` returns whether the rank may hold these items, beside those of
// the filled ranks; if so, they count as placed until `undo` of that rank, in the opposite order.
struct BinFiller {
  std::function<bool(int rank, const std::vector<int>& items)> fill;
  std::function<void(int rank, const std::vector<int>& items)> undo;
};

enum class BinAnswer { kPacked, kNone, kUnknown };

// Returns kPacked when everything is placed; kNone when all was tried; kUnknown when `effort`,
// about nanoseconds, was used up, or ranks can be filled by too many sets. The less room is free,
// the fewer the sets that fill a rank: exact fits of 60 items take milliseconds, 1 % of free room
// is out of reach.
BinAnswer CompleteBins(const PackingTask& task, const BinFiller& filler, const StopSignal& stop,
                       std::int64_t effort);

}  // namespace neuroshard
