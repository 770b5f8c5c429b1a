#include "kernels/gloo/ring_schedule.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "common/base/random.h"

namespace neuroshard {
namespace {

// Numbers in buffers; a rank's messages are queues of segments.
struct Rank {
  RingSchedule schedule;
  std::vector<float> input, output, scratch;
  std::deque<std::vector<float>> inbox;
  std::size_t sent = 0;
  std::size_t received = 0;

  std::vector<float>& Buffer(RingBuffer buffer) {
    if (buffer == RingBuffer::kScratch) return scratch;
    return buffer == RingBuffer::kInput ? input : output;
  }
  bool Done() const {
    return sent == schedule.transfers.size() && received == schedule.transfers.size();
  }
};

void Send(Rank& from, Rank& to) {
  const RingTransfer& transfer = from.schedule.transfers[from.sent++];
  const auto begin = from.Buffer(transfer.send.buffer).begin() +
                     static_cast<std::ptrdiff_t>(transfer.send.offset_bytes / 4);
  to.inbox.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(transfer.bytes / 4));
}

void Receive(Rank& rank) {
  const RingTransfer& transfer = rank.schedule.transfers[rank.received++];
  const std::vector<float> message = rank.inbox.front();
  rank.inbox.pop_front();
  ASSERT_EQ(message.size() * 4, transfer.bytes);
  for (std::size_t i = 0; i < message.size(); ++i) {
    const float added = transfer.add_input ? rank.input.at(transfer.input_offset_bytes / 4 + i) : 0;
    rank.Buffer(transfer.receive.buffer).at(transfer.receive.offset_bytes / 4 + i) =
        message[i] + added;
  }
}

// Runs all ranks in a random order that messages allow.
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
    const bool may_send = rank.sent < rank.schedule.transfers.size() &&
                          rank.sent < rank.received + rank.schedule.lead;
    if (random.Below(2) == 0 && may_send) {
      Send(rank, ranks[(r + 1) % ranks.size()]);
      idle = 0;
    } else if (!rank.inbox.empty()) {
      Receive(rank);
      idle = 0;
    }
  }
  ASSERT_TRUE(all_done()) << "nobody can go on";
}

TEST(RingScheduleTest, EveryCollectiveGivesEveryRankWhatItPromises) {
  Random random(5);
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather, Collective::kAllReduce}) {
    for (int size = 2; size <= 9; ++size) {
      for (const std::size_t block : {std::size_t{1}, std::size_t{3}, std::size_t{20'001}}) {
        SCOPED_TRACE(std::string(ToText(collective)) + " " + std::to_string(size) + " ranks, " +
                     std::to_string(block) + " numbers a block");
        const std::size_t n = static_cast<std::size_t>(size);
        const bool gather = collective == Collective::kAllGather;
        std::vector<Rank> ranks(n);
        std::vector<float> sums(n * block, 0.0F), joined;
        for (int r = 0; r < size; ++r) {
          Rank& rank = ranks[static_cast<std::size_t>(r)];
          rank.schedule = MakeRingSchedule(collective, r, size, block * 4);
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

TEST(RingScheduleTest, LongBlocksGoInSegmentsAndEmptyOnesNotAtAll) {
  EXPECT_TRUE(MakeRingSchedule(Collective::kAllReduce, 0, 4, 0).transfers.empty());
  EXPECT_EQ(MakeRingSchedule(Collective::kAllReduce, 0, 4, 1000).lead, 1u);
  EXPECT_EQ(MakeRingSchedule(Collective::kAllReduce, 0, 4, 100'000).lead, 2u);
  const RingSchedule large = MakeRingSchedule(Collective::kAllGather, 0, 2, (5 << 20) + 4);
  EXPECT_EQ(large.lead, 6u);
  std::size_t bytes = 0;
  for (const RingTransfer& transfer : large.transfers) {
    EXPECT_LE(transfer.bytes, std::size_t{1} << 20);
    bytes += transfer.bytes;
  }
  EXPECT_EQ(bytes, (std::size_t{5} << 20) + 4);
}

}  // namespace
}  // namespace neuroshard
