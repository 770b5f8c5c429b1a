#include "kernels/gloo/ring_schedule.h"

#include <algorithm>

namespace neuroshard {
namespace {

// Gloo's own largest segment; blocks too short to gain from overlap go in one.
constexpr std::size_t kMaxSegmentBytes = std::size_t{1} << 20;
constexpr std::size_t kMinOverlapBytes = std::size_t{1} << 16;
constexpr std::size_t kAlignmentBytes = 4;  // a segment holds whole numbers

struct Step {
  RingPart send;
  RingPart receive;
  bool add_input = false;
  std::size_t input_offset_bytes = 0;
};

class StepMaker {
 public:
  StepMaker(int rank, int size, std::size_t block_bytes)
      : rank_(rank), size_(size), block_bytes_(block_bytes) {}

  // `landing(step, block)` is where a partial sum of the block is kept. The rank ends with the sum
  // of its own block, at landing(size - 2, rank).
  template <typename Landing>
  void AddReduceSteps(const Landing& landing, std::vector<Step>& steps) const {
    RingPart send{RingBuffer::kInput, OffsetOf(rank_ - 1)};
    for (int step = 0; step < size_ - 1; ++step) {
      const int block = Wrapped(rank_ - step - 2);
      const RingPart receive = landing(step, block);
      steps.push_back({send, receive, true, OffsetOf(block)});
      send = receive;
    }
  }

  // `own` is the rank's block.
  void AddGatherSteps(RingPart own, std::vector<Step>& steps) const {
    RingPart send = own;
    for (int step = 0; step < size_ - 1; ++step) {
      const RingPart receive{RingBuffer::kOutput, OffsetOf(rank_ - step - 1)};
      steps.push_back({send, receive});
      send = receive;
    }
  }

  std::size_t OffsetOf(int block) const {
    return static_cast<std::size_t>(Wrapped(block)) * block_bytes_;
  }

 private:
  int Wrapped(int block) const { return ((block % size_) + size_) % size_; }

  const int rank_;
  const int size_;
  const std::size_t block_bytes_;
};

std::vector<Step> MakeSteps(Collective collective, int rank, int size, std::size_t block_bytes) {
  const StepMaker maker(rank, size, block_bytes);
  std::vector<Step> steps;
  if (collective == Collective::kReduceScatter) {
    maker.AddReduceSteps(
        [&](int step, int) {
          const bool last = step == size - 2;
          return last
                     ? RingPart{RingBuffer::kOutput, 0}
                     : RingPart{RingBuffer::kScratch, static_cast<std::size_t>(step) * block_bytes};
        },
        steps);
  } else if (collective == Collective::kAllGather) {
    maker.AddGatherSteps({RingBuffer::kInput, 0}, steps);
  } else {
    // A final block can only arrive after its partial sum was sent on, since it depends on it: both
    // may use the same place.
    const auto in_place = [&](int, int block) {
      return RingPart{RingBuffer::kOutput, maker.OffsetOf(block)};
    };
    maker.AddReduceSteps(in_place, steps);
    maker.AddGatherSteps({RingBuffer::kOutput, maker.OffsetOf(rank)}, steps);
  }
  return steps;
}

}  // namespace

RingSchedule MakeRingSchedule(Collective collective, int rank, int size, std::size_t block_bytes) {
  RingSchedule schedule;
  if (block_bytes == 0) return schedule;
  if (block_bytes > kMinOverlapBytes) {
    schedule.lead = std::max<std::size_t>(2, (block_bytes - 1) / kMaxSegmentBytes + 1);
  }
  const std::size_t even = (block_bytes - 1) / schedule.lead + 1;
  const std::size_t segment = (even + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  schedule.lead = (block_bytes - 1) / segment + 1;
  for (const Step& step : MakeSteps(collective, rank, size, block_bytes)) {
    for (std::size_t begin = 0; begin < block_bytes; begin += segment) {
      const auto within = [begin](RingPart part) {
        return RingPart{part.buffer, part.offset_bytes + begin};
      };
      schedule.transfers.push_back({within(step.send), within(step.receive),
                                    std::min(segment, block_bytes - begin), step.add_input,
                                    step.input_offset_bytes + begin});
    }
  }
  return schedule;
}

int ScratchBlocks(Collective collective, int size) {
  return collective == Collective::kReduceScatter ? std::max(0, size - 2) : 0;
}

}  // namespace neuroshard
