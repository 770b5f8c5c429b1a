// What ranks that share a process do to each other where the order of calls is unlucky or a kernel
// never ends. A worker has a process a device; rehearsal_test.sh runs its groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/nccl/nccl_backend.h"

namespace neuroshard {
namespace {

constexpr std::chrono::milliseconds kTimeout{5000};

class OneProcessTest : public ::testing::Test {
 protected:
  static std::vector<Status> ForBoth(const std::function<Status(int)>& step) {
    std::vector<Status> ended(2);
    {
      std::jthread other([&] { ended[1] = step(1); });
      ended[0] = step(0);
    }
    return ended;
  }

  void SetUp() override {
    const auto library = NcclLibrary::Load();
    ASSERT_TRUE(library.ok()) << library.status();
    std::vector<std::unique_ptr<PendingCommunicator>> pending;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < 2; ++rank) {
      pending.push_back(NcclBackend(*library, rank).Open({rank, 2, kTimeout}).value());
      addresses.push_back(pending.back()->address());
    }
    for (const Status& status : ForBoth([&](int rank) -> Status {
           NS_ASSIGN_OR_RETURN(group_[rank], pending[rank]->Connect(addresses));
           return group_[rank]->Reserve(
               {.collective = Collective::kAllGather, .block_bytes = 1024});
         })) {
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  std::unique_ptr<Communicator> group_[2];
};

// With cudaFree:0:late@0. Freeing waits for all devices of a process, so for a peer that waits for
// this one.
TEST_F(OneProcessTest, ARankThatGrowsItsBuffersWaitsForThePeerThatWaitsForIt) {
  const Status status = ForBoth([&](int rank) -> Status {
    if (rank == 0)
      NS_RETURN_IF_ERROR(
          group_[0]->Reserve({.collective = Collective::kAllGather, .block_bytes = 1 << 20}));
    return group_[rank]->Max(1).status();
  })[1];
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_NE(Message(status).find("no answer from the other ranks"), std::string::npos) << status;
}

TEST_F(OneProcessTest, AllThatReserveBeforeAnyExchangesDoNot) {
  for (const Status& status : ForBoth([&](int rank) {
         return group_[rank]->Reserve(
             {.collective = Collective::kAllGather, .block_bytes = 1 << 20});
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  for (const Status& status : ForBoth([&](int rank) { return group_[rank]->Max(1).status(); })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

// With FAKE_NCCL_MEMORY. Tables may fill what a device says it has: NCCL, which takes memory when
// there is the first exchange of a kind, finds what was kept back.
TEST_F(OneProcessTest, NcclFindsMemoryBesideTablesThatFillTheDevice) {
  std::vector<std::unique_ptr<cuda::GpuBuffer>> tables;
  for (int device = 0; device < 2; ++device) {
    const std::shared_ptr<cuda::CudaGpu> gpu = cuda::CudaGpu::Create(device).value();
    ASSERT_TRUE(group_[device]->Reserve({{64, 64}, {64, 64}}).ok());
    tables.push_back(std::make_unique<cuda::GpuBuffer>(gpu));
    ASSERT_TRUE(tables.back()->Reserve(gpu->AvailableBytes()).ok());
  }
  for (const Status& status : ForBoth([&](int rank) -> Status {
         for (const Collective collective :
              {Collective::kReduceScatter, Collective::kAllGather, Collective::kAllReduce}) {
           NS_RETURN_IF_ERROR(group_[rank]->Run({.collective = collective, .block_bytes = 64}));
         }
         return group_[rank]->Run({{64, 64}, {64, 64}});
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

// With NcclKernel:4:hang@1: the first exchange after connecting.
TEST_F(OneProcessTest, AHungExchangeEndsItsGroupAndTheDevicesServeOn) {
  // The second to give up may see that the first is gone.
  for (const Status& status : ForBoth([&](int rank) { return group_[rank]->Max(1).status(); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  }
  for (auto& rank : group_) rank.reset();
  SetUp();
  for (const Status& status : ForBoth([&](int rank) { return group_[rank]->Max(1).status(); })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace neuroshard
