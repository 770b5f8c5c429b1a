// The CUDA kernels, compiled as they are, on the SIMT emulator: the suite of every embedding
// device, and the copies that bandwidths are compared with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/bytes.h"
#include "kernels/api/testing/op_contents.h"
#include "kernels/cuda/gpu_embedding_op.h"
#include "kernels/cuda/kernel_launches.h"
#include "kernels/cuda/testing/emulated_gpu.h"
#include "kernels/cuda/testing/gpu_devices.h"
#include "kernels/cuda/testing/simt_emulator.h"
#include "tests/support/embedding_suite.h"

namespace neuroshard::testing {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(EmulatedGpu, EmbeddingSuite, GpuDevices<cuda::EmulatedGpu>);

}  // namespace
}  // namespace neuroshard::testing

namespace neuroshard::cuda {
namespace {

// Blocks and threads in another order give the same bits.
TEST(EmulatedKernelsTest, NoOrderOfThreadsChangesAResult) {
  const auto run = [](std::uint64_t seed) {
    simt::SetSeed(seed);
    auto gpu = std::make_shared<EmulatedGpu>(64 * kMiB);
    EmbeddingOpSpec spec;
    spec.batch_size = 50;
    spec.optimizer = Optimizer::kRowwiseAdagrad;
    for (const std::int64_t cols : {3, 20, 64, 130, 300}) {
      spec.tables.push_back({90, cols, PoolingMode::kMean});
    }
    spec.tables.push_back({.rows = 90,
                           .cols = 20,
                           .kernel = ComputeKernel::kFusedUvmCaching,
                           .cache_load_factor = 0.2});
    auto op = GpuEmbeddingOp::Create(gpu, spec).value();
    Random random(5);
    std::vector<LookupBatch> inputs;
    for (std::size_t t = 0; t < spec.tables.size(); ++t) {
      inputs.push_back(testing::RandomLookups(random, 90, 50, 90, t % 2 == 0));
    }
    EXPECT_TRUE(op->SetInputs(inputs).ok());
    std::vector<std::vector<float>> results;
    for (int step = 0; step < 2; ++step) {
      op->Forward();
      op->Backward();
      results.push_back(testing::ContentsOf(*op)->Output());
    }
    for (int t = 0; t < 6; ++t) results.push_back(testing::ContentsOf(*op)->Weights(t));
    return results;
  };
  const auto first = run(1);
  for (const std::uint64_t seed : {2, 3, 4}) EXPECT_EQ(run(seed), first) << "seed " << seed;
}

TEST(EmulatedKernelsTest, CopyingMovesEveryByteAndReadingNone) {
  EmulatedGpu gpu(16 * kMiB);
  for (const std::int64_t bytes : {16, 4096, 1 << 16, (1 << 20) + 48}) {
    std::byte* from = gpu.Allocate(bytes).value();
    std::byte* to = gpu.Allocate(bytes).value();
    for (std::int64_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 37 >> 3);
    ASSERT_EQ(LaunchCopy(to, from, bytes, nullptr), cudaSuccess);
    EXPECT_EQ(std::vector(to, to + bytes), std::vector(from, from + bytes)) << bytes;
    std::fill(to, to + bytes, std::byte{0});
    ASSERT_EQ(LaunchRead(to, bytes, nullptr), cudaSuccess);
    gpu.Free(from);
    gpu.Free(to);
  }
}

TEST(EmulatedKernelsTest, AGateOpensByItself) {
  const int released = 0;
  EXPECT_EQ(LaunchGate(&released, 1'000'000, nullptr), cudaSuccess);
}

// What a GPU leaves undefined.
class SimtEmulatorDeathTest : public ::testing::Test {
 protected:
  SimtEmulatorDeathTest() { GTEST_FLAG_SET(death_test_style, "fast"); }
};

unsigned Lane() { return simt::thread_index.x; }

TEST_F(SimtEmulatorDeathTest, ALaneOutsideItsMask) {
  EXPECT_DEATH(simt::Launch(1, 4, [] { simt::SyncWarp(0b0011); }),
               "block 0, thread [23].*own mask");
}
TEST_F(SimtEmulatorDeathTest, APartnerOutsideTheMask) {
  EXPECT_DEATH(simt::Launch(1, 2, [] { simt::ShuffleXor(0b11, 1, 2); }), "not in the mask");
}
TEST_F(SimtEmulatorDeathTest, ALaneThatHasEnded) {
  EXPECT_DEATH(simt::Launch(1, 2,
                            [] {
                              if (Lane() == 0) simt::SyncWarp(0b11);
                            }),
               "thread 0: waits for a lane that has ended");
}
TEST_F(SimtEmulatorDeathTest, LanesAtDifferentInstructions) {
  EXPECT_DEATH(simt::Launch(1, 2,
                            [] {
                              if (Lane() == 0) {
                                simt::SyncWarp(0b11);
                              } else {
                                simt::ShuffleXor(0b11, 0, 1);
                              }
                            }),
               "another instruction");
}
TEST_F(SimtEmulatorDeathTest, AMaskBeyondTheBlock) {
  EXPECT_DEATH(simt::Launch(1, 16, [] { simt::SyncWarp(0xffffffffU); }), "beyond the block");
}
TEST_F(SimtEmulatorDeathTest, LanesThatWaitForEachOtherInACircle) {
  EXPECT_DEATH(simt::Launch(1, 3,
                            [] {
                              constexpr unsigned kMasks[] = {0b011, 0b110, 0b101};
                              simt::SyncWarp(kMasks[Lane()]);
                            }),
               "another mask|waits for ever");
}
TEST_F(SimtEmulatorDeathTest, MemoryThatWasNotHandedOut) {
  EXPECT_DEATH(
      {
        EmulatedGpu gpu(kMiB);
        volatile std::byte* memory = gpu.Allocate(256).value();
        simt::Launch(3, 1, [&] {
          if (simt::block_index.x == 2) memory[256] = std::byte{1};
        });
      },
      "block 2, thread 0: touches");
}

TEST(SimtEmulatorTest, AShuffleGivesThePartnersValue) {
  std::vector<std::uint32_t> got(64);
  simt::Launch(1, 64, [&] { got[Lane()] = simt::ShuffleXor(0xffffffffU, Lane(), 5); });
  for (unsigned lane = 0; lane < 64; ++lane) EXPECT_EQ(got[lane], lane ^ 5U);
}

}  // namespace
}  // namespace neuroshard::cuda
