#include "kernels/tcp/ring_schedule.h"

#include <algorithm>

namespace neuroshard {

RingSchedule MakeRingSchedule(Collective collective, int rank, int size) {
  const auto wrapped = [size](int block) { return (block + 2 * size) % size; };
  RingSchedule schedule;
  if (collective != Collective::kAllGather) {
    // Ends with the sum of the own block.
    schedule.first = {RingBuffer::kInput, wrapped(rank - 1)};
    for (int step = 0; step < size - 1; ++step) {
      const int block = wrapped(rank - step - 2);
      // A sum of an all-reduce can only arrive after its partial sum was sent on, on which it
      // depends: both may use the same place.
      RingBlock receive{RingBuffer::kOutput, block};
      if (collective == Collective::kReduceScatter) {
        receive = step == size - 2 ? RingBlock{RingBuffer::kOutput, 0}
                                   : RingBlock{RingBuffer::kScratch, step};
      }
      schedule.steps.push_back({receive, block});
    }
  }
  if (collective != Collective::kReduceScatter) {
    for (int step = 0; step < size - 1; ++step) {
      schedule.steps.push_back({{RingBuffer::kOutput, wrapped(rank - step - 1)}, std::nullopt});
    }
  }
  return schedule;
}

int ScratchBlocks(Collective collective, int size) {
  return collective == Collective::kReduceScatter ? std::max(0, size - 2) : 0;
}

}  // namespace neuroshard
