#include "kernels/tcp/ring_schedule.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "common/base/random.h"

namespace neuroshard {
namespace {

// Numbers in buffers; what is on its way to a rank is a queue of numbers.
struct Rank {
  RingSchedule schedule;
  std::size_t block = 0;  // numbers
  std::vector<float> input, output, scratch;
  std::deque<float> inbox;
  std::size_t sent = 0;
  std::size_t received = 0;

  float& At(RingBlock place, std::size_t number) {
    std::vector<float>& buffer = place.buffer == RingBuffer::kScratch ? scratch
                                 : place.buffer == RingBuffer::kInput ? input
                                                                      : output;
    return buffer.at(static_cast<std::size_t>(place.block) * block + number % block);
  }
  std::size_t All() const { return schedule.steps.size() * block; }
  bool Done() const { return sent == All() && received == All(); }
  bool MaySend() const { return sent < std::min(block + received, All()); }
};

void Send(Rank& from, Rank& to) {
  const std::size_t step = from.sent / from.block;
  to.inbox.push_back(
      from.At(step == 0 ? from.schedule.first : from.schedule.steps[step - 1].receive, from.sent));
  ++from.sent;
}

void Receive(Rank& rank) {
  const RingStep& step = rank.schedule.steps[rank.received / rank.block];
  const float added =
      step.add_input ? rank.At({RingBuffer::kInput, *step.add_input}, rank.received) : 0;
  rank.At(step.receive, rank.received) = rank.inbox.front() + added;
  rank.inbox.pop_front();
  ++rank.received;
}

// Runs all ranks in a random order that what they have allows.
void Simulate(std::vector<Rank>& ranks, Random& random) {
  const auto all_done = [&] {
    for (const Rank& rank : ranks) {
      if (!rank.Done()) return false;
    }
    return true;
  };
  int idle = 0;
  while (!all_done() && idle < 1000) {
    const std::size_t r = random.Below(ranks.size());
    Rank& rank = ranks[r];
    ++idle;
    const bool sends = random.Below(2) == 0;
    for (std::uint64_t n = random.Between(1, 2000); n > 0; --n) {
      if (sends && rank.MaySend()) {
        Send(rank, ranks[(r + 1) % ranks.size()]);
        idle = 0;
      } else if (!sends && !rank.inbox.empty()) {
        Receive(rank);
        idle = 0;
      }
    }
  }
  ASSERT_TRUE(all_done()) << "nobody can go on";
}

TEST(RingScheduleTest, EveryCollectiveGivesEveryRankWhatItPromises) {
  Random random(5);
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather, Collective::kAllReduce}) {
    for (int size = 2; size <= 9; ++size) {
      for (const std::size_t block : {std::size_t{1}, std::size_t{3}, std::size_t{5001}}) {
        SCOPED_TRACE(std::string(ToText(collective)) + " " + std::to_string(size) + " ranks, " +
                     std::to_string(block) + " numbers a block");
        const std::size_t n = static_cast<std::size_t>(size);
        const bool gather = collective == Collective::kAllGather;
        std::vector<Rank> ranks(n);
        std::vector<float> sums(n * block, 0.0F), joined;
        for (int r = 0; r < size; ++r) {
          Rank& rank = ranks[static_cast<std::size_t>(r)];
          rank.schedule = MakeRingSchedule(collective, r, size);
          rank.block = block;
          rank.input.resize(gather ? block : n * block);
          for (float& value : rank.input) value = static_cast<float>(random.Between(-99, 99));
          rank.output.assign(collective == Collective::kReduceScatter ? block : n * block, 1e9F);
          rank.scratch.assign(static_cast<std::size_t>(ScratchBlocks(collective, size)) * block,
                              1e9F);
          joined.insert(joined.end(), rank.input.begin(), rank.input.end());
          if (gather) {
            std::copy(rank.input.begin(), rank.input.end(),
                      rank.output.begin() + static_cast<std::ptrdiff_t>(r * block));
          } else {
            for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += rank.input[i];
          }
        }
        Simulate(ranks, random);
        for (std::size_t r = 0; r < n; ++r) {
          if (collective == Collective::kReduceScatter) {
            const auto own = sums.begin() + static_cast<std::ptrdiff_t>(r * block);
            const auto end = own + static_cast<std::ptrdiff_t>(block);
            EXPECT_EQ(ranks[r].output, std::vector<float>(own, end)) << "rank " << r;
          } else {
            EXPECT_EQ(ranks[r].output, gather ? joined : sums) << "rank " << r;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace neuroshard
