// Ring algorithms as lists of blocks.
#pragma once

#include <optional>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// The buffers of a collective.
enum class RingBuffer { kInput, kOutput, kScratch };

// A place in one of the buffers, in blocks.
struct RingBlock {
  RingBuffer buffer = RingBuffer::kInput;
  int block = 0;
};

// A block that comes from the left neighbour (rank - 1).
struct RingStep {
  RingBlock receive;
  std::optional<int> add_input;  // the block of the input that is added to what was received
};

// The rank sends to its right neighbour (rank + 1) the block `first` and then what it received in
// each step but the last, byte by byte as soon as it is there.
struct RingSchedule {
  RingBlock first;
  std::vector<RingStep> steps;
};

// What rank `rank` of `size` >= 2 does; bandwidth-optimal: reduce_scatter and all_gather in
// size - 1 steps, all_reduce in both. `collective` is not kAllToAll. The input holds `size` blocks
// (one for all_gather), the output `size` (one for reduce_scatter), the scratch ScratchBlocks. For
// all_gather the own block has to be copied to the output besides.
RingSchedule MakeRingSchedule(Collective collective, int rank, int size);

// Blocks of partial sums that are neither input nor output.
int ScratchBlocks(Collective collective, int size);

}  // namespace neuroshard
