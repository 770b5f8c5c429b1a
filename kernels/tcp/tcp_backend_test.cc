#include "kernels/tcp/tcp_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "kernels/tcp/testing/tcp_group_fixture.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::Addresses;
using ::neuroshard::testing::Group;
using ::neuroshard::testing::kLong;
using ::neuroshard::testing::OpenAll;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kShort{3000};  // a group that is whole has to connect within it

using Matrix = std::vector<std::vector<std::int64_t>>;  // [from][to] bytes

Exchange CountsOf(const Matrix& bytes, int rank) {
  Exchange counts;
  for (std::size_t peer = 0; peer < bytes.size(); ++peer) {
    counts.send_bytes.push_back(bytes[rank][peer]);
    counts.receive_bytes.push_back(bytes[peer][rank]);
  }
  return counts;
}

std::byte Content(int from, int to, std::int64_t position, int round) {
  return static_cast<std::byte>(from * 71 + to * 31 + position * 7 + (position >> 8) + round * 13);
}

void ExchangeAndCheck(Group& group, const Matrix& bytes, int round) {
  group.ForEach([&](int rank) {
    const Exchange counts = CountsOf(bytes, rank);
    ASSERT_TRUE(group[rank].Reserve(counts).ok());
    std::size_t next = 0;
    for (int to = 0; to < group.size(); ++to) {
      for (std::int64_t i = 0; i < bytes[rank][to]; ++i) {
        group[rank].SendBuffer()[next++] = Content(rank, to, i, round);
      }
    }
    const Status status = group[rank].Run(counts);
    ASSERT_TRUE(status.ok()) << status;
    next = 0;
    for (int from = 0; from < group.size(); ++from) {
      for (std::int64_t i = 0; i < bytes[from][rank]; ++i) {
        ASSERT_EQ(group[rank].ReceiveBuffer()[next++], Content(from, rank, i, round))
            << "from " << from << " to " << rank << " byte " << i;
      }
    }
  });
}

TEST(TcpBackendTest, EveryRankSaysOverWhatItMetItsPeers) {
  Group group(2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(group[rank].Network().at("network_address"), "127.0.0.1");
    EXPECT_EQ(group[rank].Network().at("network_interface"), "lo");
  }
}

TEST(TcpAllToAllTest, UnevenCountsArriveByteForByte) {
  Group group(4);
  const Matrix bytes = {{5, 0, 300000, 1}, {0, 0, 0, 0}, {77, 4096, 0, 65537}, {1, 2, 3, 4}};
  for (int round = 0; round < 3; ++round) ExchangeAndCheck(group, bytes, round);
}

TEST(TcpAllToAllTest, RandomExchangesOnOneGroup) {
  Group group(4);
  Random random(7);
  for (int round = 0; round < 12; ++round) {
    Matrix bytes(4, std::vector<std::int64_t>(4));
    for (auto& row : bytes) {
      for (auto& count : row) count = random.Below(3) == 0 ? 0 : random.Between(1, 20000);
    }
    ExchangeAndCheck(group, bytes, round);
  }
}

TEST(TcpAllToAllTest, NothingToExchangeIsFine) {
  Group group(3);
  ExchangeAndCheck(group, Matrix(3, std::vector<std::int64_t>(3, 0)), 0);
}

TEST(TcpAllToAllTest, OneRankExchangesWithItself) {
  Group group(1);
  ExchangeAndCheck(group, {{1000}}, 0);
  EXPECT_TRUE(group[0].Barrier().ok());
  EXPECT_EQ(group[0].Max(2.5).value(), 2.5);
}

TEST(TcpAllToAllTest, BadCountsAreRefusedAndLeaveTheGroupWhole) {
  Group group(2);
  EXPECT_EQ(group[0].Reserve({{1}, {1}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group[0].Reserve({{1, -1}, {1, 1}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group[0].Reserve({{1, 1}, {2, 1}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group[0].Run({{8, 8}, {8, 8}}).code(), absl::StatusCode::kInvalidArgument);
  ExchangeAndCheck(group, {{1, 2}, {3, 4}}, 0);
}

TEST(TcpAllToAllTest, BuffersThatCannotFitAreAValue) {
  Group group(2);
  constexpr std::int64_t kHuge = std::int64_t{1} << 60;
  EXPECT_EQ(group[0].Reserve({{0, kHuge}, {0, kHuge}}).code(),
            absl::StatusCode::kResourceExhausted);
  ExchangeAndCheck(group, {{1, 2}, {3, 4}}, 0);
}

TEST(TcpCommunicatorTest, MaxIsTheSameEverywhere) {
  Group group(4);
  group.ForEach([&](int rank) {
    for (int round = 0; round < 5; ++round) {
      const auto max = group[rank].Max(round % 2 == 0 ? rank * 1.5 : -rank);
      ASSERT_TRUE(max.ok()) << max.status();
      EXPECT_EQ(*max, round % 2 == 0 ? 4.5 : 0);
    }
  });
}

TEST(TcpCommunicatorTest, BarrierHoldsEveryoneUntilTheLastEnters) {
  Group group(4);
  std::atomic<int> entered = 0;
  group.ForEach([&](int rank) {
    for (int round = 1; round <= 10; ++round) {
      ++entered;
      ASSERT_TRUE(group[rank].Barrier().ok());
      EXPECT_GE(entered.load(), 4 * round);
    }
  });
}

TEST(TcpFailureTest, ADeadPeerAbortsTheOthersLongBeforeTheTimeout) {
  Group group(4);
  const Matrix bytes(4, std::vector<std::int64_t>(4, 1000));
  ExchangeAndCheck(group, bytes, 0);
  const auto begin = std::chrono::steady_clock::now();
  group.ForEach([&](int rank) {
    if (rank == 2) return group.Kill(rank);
    const Status status = group[rank].Run(CountsOf(bytes, rank));
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2);
  for (const int rank : {0, 1, 3}) {  // the group stays broken
    EXPECT_EQ(group[rank].Barrier().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(group[rank].Max(1).status().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(group[rank].Reserve(CountsOf(bytes, rank)).code(), absl::StatusCode::kAborted);
  }
}

TEST(TcpFailureTest, APeerThatDiesInTheMiddleOfAMessageAbortsTheOthersLongBeforeTheTimeout) {
  constexpr std::int64_t kBytes = std::int64_t{16} << 20;
  const Exchange counts{std::vector(4, kBytes), std::vector(4, kBytes)};
  Group group(4);
  group.ForEach([&](int rank) { ASSERT_TRUE(group[rank].Reserve(counts).ok()); });
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> exchanges = 0;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < group.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      Status status;  // until the connections of rank 3 are cut
      for (; status.ok(); ++exchanges) status = group[rank].Run(counts);
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    });
  }
  while (exchanges < 2 * group.size()) std::this_thread::yield();
  group[3].Abort();  // nearly always in the middle of something
  ranks.clear();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2);
}

TEST(TcpFailureTest, ASilentPeerAbortsTheOthersAfterTheTimeout) {
  Group group(3, kShort);
  const Matrix bytes(3, std::vector<std::int64_t>(3, 1000));
  ExchangeAndCheck(group, bytes, 0);
  group.ForEach([&](int rank) {
    if (rank == 1) return;  // alive, but does not come
    EXPECT_EQ(group[rank].Run(CountsOf(bytes, rank)).code(), absl::StatusCode::kAborted);
  });
}

TEST(TcpFailureTest, APeerThatNeverConnectsAbortsTheConnection) {
  auto pending = OpenAll(3, kShort);
  const std::vector<std::string> addresses = Addresses(pending);
  std::vector<std::jthread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      const auto connected = pending[rank]->Connect(addresses);
      EXPECT_EQ(connected.status().code(), absl::StatusCode::kAborted) << connected.status();
    });
  }
}

TEST(TcpFailureTest, ConnectingGivesUpAboutWhenTheTimeoutPassed) {
  constexpr milliseconds kTimeout{1000};
  for (const int rank : {0, 1}) {  // one listens, the other one dials
    auto pending = OpenAll(2, kTimeout);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(pending[rank]->Connect(Addresses(pending)).status().code(),
              absl::StatusCode::kAborted);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10 * kTimeout);
  }
}

TEST(TcpFailureTest, AbortEndsWhatWaitsForASilentPeer) {
  const Exchange counts{{8, 8}, {8, 8}};
  const std::vector<std::function<Status(Communicator&)>> calls = {
      [&](Communicator& rank) { return rank.Run(counts); },
      [](Communicator& rank) { return rank.Barrier(); },
      [](Communicator& rank) { return rank.Max(1).status(); }};
  for (const auto& call : calls) {
    Group group(2);
    ASSERT_TRUE(group[0].Reserve(counts).ok());
    const auto begin = std::chrono::steady_clock::now();
    std::jthread waiting([&] {
      // Whether Abort comes before the call or during it.
      EXPECT_EQ(call(group[0]).code(), absl::StatusCode::kAborted);
      EXPECT_EQ(call(group[0]).code(), absl::StatusCode::kAborted);
    });
    group[0].Abort();
    waiting.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2);
  }
}

TEST(TcpFailureTest, AbortEndsConnecting) {
  auto pending = OpenAll(3, kLong);
  const std::vector<std::string> addresses = Addresses(pending);
  const auto begin = std::chrono::steady_clock::now();
  std::jthread connecting([&] {
    EXPECT_EQ(pending[1]->Connect(addresses).status().code(), absl::StatusCode::kAborted);
  });
  pending[1]->Abort();
  connecting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2);
}

TEST(TcpFailureTest, APeerThatIsGoneAbortsTheConnection) {
  auto pending = OpenAll(2, kShort);
  const std::vector<std::string> addresses = Addresses(pending);
  pending[1].reset();
  EXPECT_EQ(pending[0]->Connect(addresses).status().code(), absl::StatusCode::kAborted);
}

TEST(TcpFailureTest, MissingOrForeignAddressesAreInvalid) {
  for (const std::vector<std::string>& addresses :
       {std::vector<std::string>{}, {"x", "y"}, {"", "", ""}}) {
    auto pending = OpenAll(2, kShort);
    EXPECT_EQ(pending[0]->Connect(addresses).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(TcpFailureTest, ConnectTwiceIsRefused) {
  auto pending = OpenAll(1, kShort);
  EXPECT_TRUE(pending[0]->Connect({pending[0]->address()}).ok());
  EXPECT_EQ(pending[0]->Connect({pending[0]->address()}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(TcpBackendTest, DestroyingWhatWasNeverConnectedIsQuick) {
  const auto begin = std::chrono::steady_clock::now();
  OpenAll(8, kLong);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2);
}

TEST(TcpBackendTest, AddressThatIsNotOursIsUnavailable) {
  const TcpBackend backend{{.host = "192.0.2.1"}};  // nobody's
  const auto opened = backend.Open({0, 2, kShort});
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(opened.status()), HasSubstr("192.0.2.1"));
}

TEST(TcpBackendTest, UnknownInterfaceIsUnavailable) {
  const TcpBackend backend{{.host = "", .interface = "nosuch0"}};
  EXPECT_EQ(backend.Open({0, 2, kShort}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(TcpBackendTest, RankOutsideTheGroupIsInvalid) {
  const TcpBackend backend{CollectiveOptions{}};
  EXPECT_EQ(backend.Open({2, 2, kShort}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backend.Open({-1, 2, kShort}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace neuroshard
