#include "kernels/nccl/nccl_backend.h"

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/nccl/nccl_communicator.h"
#include "kernels/nccl/nccl_rank.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{20000}, kShort{1500};

// How often NCCL was asked how far it is: somebody waits for a peer when the number grows.
std::atomic<int> polls = 0;
decltype(&ncclCommGetAsyncError) poll_nccl = nullptr;

// How often a part was given to NCCL.
std::atomic<int> sends = 0;
decltype(&ncclSend) send_nccl = nullptr;

void WaitForPolls(int more) {
  for (const int before = polls; polls < before + more;) std::this_thread::yield();
}

TEST(UniqueIdTextTest, ComesBack) {
  char bytes[128], back[128];
  for (int i = 0; i < 128; ++i) bytes[i] = static_cast<char>(i * 37);
  ASSERT_TRUE(HexToBytes(absl::BytesToHexString(absl::string_view(bytes, 128)), back));
  EXPECT_TRUE(std::equal(std::begin(bytes), std::end(bytes), std::begin(back)));
  EXPECT_FALSE(HexToBytes("nccl rank 1", back));
  EXPECT_FALSE(HexToBytes(std::string(256, 'g'), back));
}

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const StatusOr<int> devices = cuda::CountCudaDevices();
    if (!devices.ok()) GTEST_SKIP() << "SKIPPED, NOT TESTED: " << devices.status();
    devices_ = *devices;
    auto library = NcclLibrary::Load();
    if (!library.ok()) GTEST_SKIP() << "SKIPPED, NOT TESTED: " << library.status();
    const auto counting = std::const_pointer_cast<NcclLibrary>(*library);
    poll_nccl = counting->CommGetAsyncError;
    counting->CommGetAsyncError = [](ncclComm_t handle, ncclResult_t* state) {
      ++polls;
      return poll_nccl(handle, state);
    };
    send_nccl = counting->Send;
    counting->Send = [](const void* from, std::size_t count, ncclDataType_t type, int peer,
                        ncclComm_t handle, cudaStream_t stream) {
      ++sends;
      return send_nccl(from, count, type, peer, handle, stream);
    };
    library_ = counting;
  }

  std::unique_ptr<PendingCommunicator> Open(int rank, int world_size, milliseconds timeout,
                                            const std::string& clock = "here") {
    return NcclBackend(library_, rank % devices_, {}, clock)
        .Open({rank, world_size, timeout})
        .value();
  }

  // A group with one rank a device, NCCL's rule; the calls of each on a thread of its own.
  std::vector<std::unique_ptr<Communicator>> Group(
      int size, const std::function<std::string(int)>& clock = [](int) { return "here"; }) {
    std::vector<std::unique_ptr<PendingCommunicator>> pending;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < size; ++rank) {
      pending.push_back(Open(rank, size, kLong, clock(rank)));
      addresses.push_back(pending.back()->address());
    }
    std::vector<std::unique_ptr<Communicator>> group(size);
    ForEach(size, [&](int rank) {
      auto connected = pending[rank]->Connect(addresses);
      ASSERT_TRUE(connected.ok()) << connected.status();
      group[rank] = *std::move(connected);
    });
    return group;
  }

  static void ForEach(int size, const std::function<void(int)>& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  }

  static std::vector<float> Floats(NcclCommunicator& rank, const std::byte* from,
                                   std::size_t count) {
    std::vector<float> values(count);
    EXPECT_TRUE(rank.gpu().CopyOut(values.data(), from, static_cast<std::int64_t>(count) * 4).ok());
    return values;
  }

  int devices_ = 0;
  std::shared_ptr<const NcclLibrary> library_;
};

// Rank r sends the numbers 1000 r + i; with one device this is NCCL with itself.
TEST_F(NcclTest, EveryCollectiveGivesWhatItSays) {
  const int n = std::min(devices_, 8);
  auto group = Group(n);
  constexpr int kBlock = 1000;
  // Uneven: rank r sends 10 (r + peer) + 1 numbers to peer, and gets as many.
  const auto counts_of = [n](int r) {
    Exchange counts;
    for (int peer = 0; peer < n; ++peer) {
      counts.send_bytes.push_back(4 * (10 * (r + peer) + 1));
      counts.receive_bytes.push_back(4 * (10 * (r + peer) + 1));
    }
    return counts;
  };
  ForEach(n, [&](int r) {
    ASSERT_TRUE(
        group[r]->Reserve({.collective = Collective::kAllReduce, .block_bytes = kBlock * 4}).ok());
    ASSERT_TRUE(group[r]->Reserve(counts_of(r)).ok());
  });
  ForEach(n, [&](int r) {
    auto& rank = dynamic_cast<NcclCommunicator&>(*group[r]);
    std::vector<float> sent(n * kBlock);
    for (int i = 0; i < n * kBlock; ++i) sent[i] = static_cast<float>(1000 * r + i % 997);
    const auto sum = [&](int i) {
      return static_cast<float>(1000 * n * (n - 1) / 2 + n * (i % 997));
    };
    const auto fill = [&] {
      ASSERT_TRUE(rank.gpu()
                      .CopyIn(rank.device_send_buffer(), sent.data(),
                              static_cast<std::int64_t>(sent.size()) * 4)
                      .ok());
    };
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
      fill();
      const Status status = rank.Run({.collective = collective, .block_bytes = kBlock * 4});
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(rank.LastExchangeMs().has_value());
      EXPECT_GT(*rank.LastExchangeMs(), 0);
      const int blocks = collective == Collective::kReduceScatter ? 1 : n;
      const auto got = Floats(rank, rank.device_receive_buffer(), blocks * kBlock);
      for (int i = 0; i < blocks * kBlock; ++i) {
        const float expected = collective == Collective::kAllReduce ? sum(i)
                               : collective == Collective::kReduceScatter
                                   ? sum(r * kBlock + i)
                                   : static_cast<float>(1000 * (i / kBlock) + i % kBlock % 997);
        ASSERT_EQ(got[i], expected) << ToText(collective) << " " << i;
      }
    }
    const Exchange counts = counts_of(r);
    fill();
    const Status status = rank.Run(counts);
    ASSERT_TRUE(status.ok()) << status;
    const auto got =
        Floats(rank, rank.device_receive_buffer(), BytesOf(counts, r, n).value().receive / 4);
    std::size_t next = 0;
    for (int peer = 0; peer < n; ++peer) {
      int first = 0;  // of what peer sends here
      for (int before = 0; before < r; ++before) first += 10 * (peer + before) + 1;
      for (int i = 0; i < 10 * (r + peer) + 1; ++i) {
        ASSERT_EQ(got[next++], static_cast<float>(1000 * peer + (first + i) % 997));
      }
    }
    EXPECT_EQ(rank.Max(r).value(), n - 1);
    EXPECT_TRUE(rank.Barrier().ok());
  });
}

// As torch.distributed does: a copy of its own would be done before the other parts.
TEST_F(NcclTest, ARanksPartToItselfGoesThroughNccl) {
  auto group = Group(1);
  ASSERT_TRUE(group[0]->Reserve({{64}, {64}}).ok());
  sends = 0;
  ASSERT_TRUE(group[0]->Run({{64}, {64}}).ok());
  EXPECT_EQ(sends, 1);
}

TEST_F(NcclTest, WhatWasNotReservedIsRefusedAndLeavesTheGroupWhole) {
  auto group = Group(1);
  EXPECT_EQ(group[0]->Run({{1 << 20}, {1 << 20}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group[0]->Reserve({{1, 1}, {1}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group[0]->Run({.collective = Collective::kAllToAll, .block_bytes = 4}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group[0]->Reserve({{std::int64_t{1} << 50}, {std::int64_t{1} << 50}}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(group[0]->Barrier().ok());
}

// And the device is as good as before.
TEST_F(NcclTest, APeerThatNeverComesEndsTheConnectionAfterTheTimeout) {
  auto pending = Open(0, 2, kShort);
  const auto begin = std::chrono::steady_clock::now();
  const auto connected = pending->Connect({pending->address(), "nccl rank 1"});
  EXPECT_EQ(connected.status().code(), absl::StatusCode::kAborted) << connected.status();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2);
  pending.reset();
  EXPECT_TRUE(Group(1)[0]->Barrier().ok());
}

TEST_F(NcclTest, AbortEndsConnecting) {
  auto pending = Open(0, 2, kLong);
  const auto begin = std::chrono::steady_clock::now();
  std::jthread connecting([&] {
    EXPECT_EQ(pending->Connect({pending->address(), ""}).status().code(),
              absl::StatusCode::kAborted);
  });
  WaitForPolls(10);
  pending->Abort();
  connecting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong / 2);
  EXPECT_TRUE(Group(1)[0]->Barrier().ok());
}

TEST_F(NcclTest, ASilentPeerAbortsTheOthersAndDevicesStayUsable) {
  if (devices_ < 2) GTEST_SKIP() << "SKIPPED, NOT TESTED: needs two devices";
  {
    auto group = Group(2);
    std::jthread aborting([&] {
      WaitForPolls(10);
      group[0]->Abort();
    });
    EXPECT_EQ(group[0]->Barrier().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(group[0]->Max(1).status().code(), absl::StatusCode::kAborted);
  }
  auto again = Group(2);
  ForEach(2, [&](int rank) { EXPECT_TRUE(again[rank]->Barrier().ok()); });
}

// NCCL's own rule, unless a later one lifts it. Workers that take part on one device all the same
// say that they are different hosts (NCCL_HOSTID, see bench/gpu/DECISIONS.md).
TEST_F(NcclTest, TwoRanksOfOneProcessOnOneDeviceWorkOrAreRefused) {
  std::vector<std::unique_ptr<PendingCommunicator>> pending;
  for (int rank = 0; rank < 2; ++rank) {
    pending.push_back(NcclBackend(library_, 0).Open({rank, 2, kLong}).value());
  }
  const std::vector<std::string> addresses = {pending[0]->address(), pending[1]->address()};
  ForEach(2, [&](int rank) {
    const auto connected = pending[rank]->Connect(addresses);
    if (connected.ok()) return;
    EXPECT_EQ(connected.status().code(), absl::StatusCode::kAborted);
    std::cout << connected.status() << "\n";
  });
  pending.clear();
  EXPECT_TRUE(Group(1)[0]->Barrier().ok());
}

// What waits until the exchange is enqueued is called once, before it begins; the wait is not part
// of its time. It ends at the same moment on all ranks: who comes first waits for the last, and
// that is part of its time.
TEST_F(NcclTest, AHeldExchangeIsTimedFromItsStart) {
  constexpr milliseconds kWait{100};
  auto group = Group(std::min(devices_, 8));
  ForEach(static_cast<int>(group.size()), [&](int r) {
    ASSERT_TRUE(
        group[r]->Reserve({.collective = Collective::kAllReduce, .block_bytes = 4096}).ok());
  });
  ForEach(static_cast<int>(group.size()), [&](int r) {
    auto& rank = dynamic_cast<NcclCommunicator&>(*group[r]);
    const SteadyClock clock;
    int waits = 0;
    for (int i = 0; i < 3; ++i) {
      const auto met = rank.Meet(clock);
      ASSERT_TRUE(met.ok()) << met.status();
      const TimePoint start = *met + kWait;
      rank.StartNextWhen(start - clock.Now(), [&] {
        ++waits;
        std::this_thread::sleep_until(start);
        // The first of its kind waits before it is enqueued.
        EXPECT_TRUE(i == 0 || !rank.Begun());
      });
      const Status ran = rank.Run({.collective = Collective::kAllReduce, .block_bytes = 4096});
      const TimePoint ended = clock.Now();
      ASSERT_TRUE(ran.ok()) << ran;
      EXPECT_GE(ended, start);
      EXPECT_LT(*rank.LastExchangeMs(), MillisecondsBetween(start, ended) + 1);
    }
    EXPECT_EQ(waits, 3);
  });
}

TEST_F(NcclTest, RanksOfOneClockAgreeOnTheirStart) {
  if (devices_ < 2) GTEST_SKIP() << "SKIPPED, NOT TESTED: needs two devices";
  const SteadyClock clock;
  for (const bool one_clock : {true, false}) {
    auto group = Group(2, [&](int rank) { return one_clock ? "here" : std::to_string(rank); });
    TimePoint came[2], start[2];
    ForEach(2, [&](int rank) {
      // The second comes late.
      if (rank == 1) WaitForPolls(100);
      came[rank] = clock.Now();
      const auto met = group[rank]->Meet(clock);
      ASSERT_TRUE(met.ok()) << met.status();
      start[rank] = *met;
    });
    EXPECT_GE(start[0], came[1]);
    EXPECT_GE(start[1], came[1]);
    EXPECT_EQ(start[0] == start[1], one_clock) << "two barriers end at different nanoseconds";
  }
}

// A gate that its exchange outlasts: begun by itself, its time would be wrong.
TEST_F(NcclTest, AnExchangeThatIsHeldForTooLongFails) {
  auto group = Group(1);
  ASSERT_TRUE(group[0]->Reserve({.collective = Collective::kAllReduce, .block_bytes = 4096}).ok());
  ASSERT_TRUE(group[0]->Run({.collective = Collective::kAllReduce, .block_bytes = 4096}).ok());
  group[0]->StartNextWhen(milliseconds(0), [] { std::this_thread::sleep_for(milliseconds(250)); });
  const Status late = group[0]->Run({.collective = Collective::kAllReduce, .block_bytes = 4096});
  EXPECT_EQ(late.code(), absl::StatusCode::kAborted);
  EXPECT_NE(Message(late).find("longer than 200 ms"), std::string::npos) << late;
}

TEST_F(NcclTest, BadAddressesAndSpecsAreInvalid) {
  auto pending = Open(0, 2, kShort);
  EXPECT_EQ(pending->Connect({"x", "y"}).status().code(), absl::StatusCode::kInvalidArgument);
  const NcclBackend backend(library_, 0);
  EXPECT_EQ(backend.Open({2, 2, kShort}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backend.Open({0, 2, milliseconds(0)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace neuroshard
