// reduce_scatter, all_gather and all_reduce over real sockets.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string>

#include "common/base/random.h"
#include "kernels/tcp/testing/tcp_group_fixture.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::Group;
using ::neuroshard::testing::kLong;

constexpr Collective kBlockCollectives[] = {Collective::kReduceScatter, Collective::kAllGather,
                                            Collective::kAllReduce};

// Whole numbers, so that the order of additions does not matter.
std::vector<float> RandomNumbers(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random.Between(-1000, 1000));
  return numbers;
}

// What rank `rank` has to end with.
std::vector<float> Expected(Collective collective, const std::vector<std::vector<float>>& inputs,
                            std::size_t rank, std::size_t block) {
  std::vector<float> all;
  if (collective == Collective::kAllGather) {
    for (const auto& input : inputs) all.insert(all.end(), input.begin(), input.end());
    return all;
  }
  all.assign(inputs.front().size(), 0.0F);
  for (const auto& input : inputs) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += input[i];
  }
  if (collective == Collective::kAllReduce) return all;
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * block);
  return {begin, begin + static_cast<std::ptrdiff_t>(block)};
}

void RunAndCheck(Group& group, Collective collective, std::size_t block, std::uint64_t seed) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t input_size = collective == Collective::kAllGather ? block : block * ranks;
  std::vector<std::vector<float>> inputs;
  for (std::size_t r = 0; r < ranks; ++r) {
    inputs.push_back(RandomNumbers(input_size, seed * 100 + r));
  }
  const auto block_bytes = static_cast<std::int64_t>(block * sizeof(float));
  group.ForEach([&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    ASSERT_TRUE(group[rank].Reserve({.collective = collective, .block_bytes = block_bytes}).ok());
    const auto bytes = std::as_bytes(std::span(inputs[r]));
    std::copy(bytes.begin(), bytes.end(), group[rank].SendBuffer().begin());
    const Status status = group[rank].Run({.collective = collective, .block_bytes = block_bytes});
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<float> expected = Expected(collective, inputs, r, block);
    ASSERT_GE(group[rank].ReceiveBuffer().size(), expected.size() * sizeof(float));
    const auto sums = std::as_bytes(std::span(expected));
    EXPECT_TRUE(std::equal(sums.begin(), sums.end(), group[rank].ReceiveBuffer().begin()))
        << ToText(collective) << " of " << block << " numbers a block, rank " << rank;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), group[rank].SendBuffer().begin()))
        << "what was sent has changed";
  });
}

TEST(TcpCollectivesTest, RightOnTwoToEightRanks) {
  for (int size = 2; size <= 8; ++size) {
    Group group(size);
    std::uint64_t seed = static_cast<std::uint64_t>(size);
    // Buffers of one collective are used by the next.
    for (const std::size_t block : {std::size_t{17'001}, std::size_t{1}, std::size_t{1000}}) {
      for (const Collective collective : kBlockCollectives) {
        RunAndCheck(group, collective, block, ++seed);
      }
    }
  }
}

TEST(TcpCollectivesTest, RightOverManyTurns) {
  Group group(3);
  for (const Collective collective : kBlockCollectives) {
    RunAndCheck(group, collective, 600'001, 9);  // 2.4 MB a block, 1 MiB a turn
  }
}

TEST(TcpCollectivesTest, RightOneAfterTheOtherAndBesideAllToAlls) {
  Group group(4);
  Random random(3);
  for (int round = 0; round < 20; ++round) {
    const Collective collective = kBlockCollectives[random.Below(3)];
    RunAndCheck(group, collective, random.Between(1, 40'000), static_cast<std::uint64_t>(round));
    group.ForEach([&](int rank) {
      const Exchange counts{std::vector<std::int64_t>(4, 500), std::vector<std::int64_t>(4, 500)};
      ASSERT_TRUE(group[rank].Reserve(counts).ok());
      EXPECT_TRUE(group[rank].Run(counts).ok());
      EXPECT_EQ(*group[rank].Max(rank), 3);
    });
  }
}

TEST(TcpCollectivesTest, OneRankHasItsOwnAndEmptyBlocksAreFine) {
  Group alone(1);
  Group group(3);
  for (const Collective collective : kBlockCollectives) {
    RunAndCheck(alone, collective, 100, 1);
    RunAndCheck(group, collective, 0, 1);
  }
}

TEST(TcpCollectivesTest, BadBlocksAreRefusedAndLeaveTheGroupWhole) {
  Group group(2);
  const auto code = [&](Collective collective, std::int64_t bytes) {
    return group[0].Reserve({.collective = collective, .block_bytes = bytes}).code();
  };
  EXPECT_EQ(code(Collective::kAllToAll, 4), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Collective::kAllReduce, -4), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Collective::kAllReduce, 6), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Collective::kAllReduce, std::int64_t{1} << 62),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Collective::kAllReduce, std::int64_t{1} << 58),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(group[0].Run({.collective = Collective::kReduceScatter, .block_bytes = 8}).code(),
            absl::StatusCode::kInvalidArgument)
      << "not reserved";
  RunAndCheck(group, Collective::kAllReduce, 10, 2);
}

TEST(TcpCollectivesTest, ADeadPeerAbortsTheOthersLongBeforeTheTimeout) {
  for (const Collective collective : kBlockCollectives) {
    Group group(4);
    RunAndCheck(group, collective, 1000, 1);
    const auto begin = std::chrono::steady_clock::now();
    group.ForEach([&](int rank) {
      if (rank == 2) return group.Kill(rank);
      // A rank that is not beside the dead one learns of it when its neighbours give up.
      const Status status = group[rank].Run({.collective = collective, .block_bytes = 4000});
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2) << ToText(collective);
  }
}

TEST(TcpCollectivesTest, APeerThatDiesInTheMiddleAbortsTheOthersLongBeforeTheTimeout) {
  constexpr std::int64_t kBlockBytes = std::int64_t{4} << 20;
  for (const Collective collective : kBlockCollectives) {
    Group group(4);
    group.ForEach([&](int rank) {
      ASSERT_TRUE(group[rank].Reserve({.collective = collective, .block_bytes = kBlockBytes}).ok());
    });
    const auto begin = std::chrono::steady_clock::now();
    std::atomic<int> runs = 0;
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < group.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        Status status;  // until the connections of rank 3 are cut
        for (; status.ok(); ++runs)
          status = group[rank].Run({.collective = collective, .block_bytes = kBlockBytes});
        EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
      });
    }
    while (runs < 2 * group.size()) std::this_thread::yield();
    group[3].Abort();
    ranks.clear();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2) << ToText(collective);
  }
}

}  // namespace
}  // namespace neuroshard
