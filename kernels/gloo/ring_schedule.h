// Ring algorithms as lists of transfers.
#pragma once

#include <cstddef>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// The registered buffers of a collective.
enum class RingBuffer { kInput, kOutput, kScratch };

// A place in one of the buffers.
struct RingPart {
  RingBuffer buffer = RingBuffer::kInput;
  std::size_t offset_bytes = 0;
};

// A rank sends `bytes` to its right neighbour (rank + 1) and receives as many from its left one.
struct RingTransfer {
  RingPart send;
  RingPart receive;
  std::size_t bytes = 0;
  bool add_input = false;  // of the same place in the input, to what was received
  std::size_t input_offset_bytes = 0;
};

// Transfer i + lead sends what transfer i received; the first `lead` send what is there at the
// beginning.
struct RingSchedule {
  std::size_t lead = 1;
  std::vector<RingTransfer> transfers;
};

// What rank `rank` of `size` >= 2 does; bandwidth-optimal, as Gloo's own ring algorithms are:
// reduce_scatter and all_gather in size - 1 steps of a block each, all_reduce in both. A block goes
// in segments, so that a segment is on its way while the one before is being added. `collective` is
// not kAllToAll. The input holds `size` blocks (one for all_gather), the output `size` (one for
// reduce_scatter), the scratch ScratchBlocks. For all_gather the own block has to be copied to the
// output besides.
RingSchedule MakeRingSchedule(Collective collective, int rank, int size, std::size_t block_bytes);

// Blocks of partial sums that are neither input nor output.
int ScratchBlocks(Collective collective, int size);

}  // namespace neuroshard
