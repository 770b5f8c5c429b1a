// Faults put into the CUDA kernels on purpose (testing/kernel_faults.json): the emulator, or the
// oracle, has to notice each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "kernels/cuda/gpu_embedding_op.h"
#include "kernels/cuda/kernel_launches.h"
#include "kernels/cuda/testing/emulated_gpu.h"
#include "kernels/cuda/testing/simt_emulator.h"
#include "tests/support/every_kernel.h"

namespace neuroshard::cuda {
namespace {

// Every kernel once, beside the oracle.
void RunEveryKernel() {
  auto gpu = std::make_shared<EmulatedGpu>(64 * kMiB);
  testing::RunEveryLookupKernel(
      [&gpu](const EmbeddingOpSpec& spec) { return GpuEmbeddingOp::Create(gpu, spec); });

  constexpr std::int64_t kBytes = 16 * (40 * 1024 + 5);
  std::byte* from = gpu->Allocate(kBytes).value();
  std::byte* to = gpu->Allocate(kBytes).value();
  for (std::int64_t i = 0; i < kBytes; ++i) from[i] = static_cast<std::byte>(i * 37 >> 3);
  EXPECT_EQ(LaunchCopy(to, from, kBytes, nullptr), cudaSuccess);
  EXPECT_EQ(std::vector(to, to + kBytes), std::vector(from, from + kBytes));
  gpu->Free(from);
  gpu->Free(to);
}

std::vector<std::string> Faults() {
  std::ifstream file(std::string(NEUROSHARD_SOURCE_DIR) +
                     "/kernels/cuda/testing/kernel_faults.json");
  std::vector<std::string> names;
  for (const auto& fault : nlohmann::json::parse(file)) names.push_back(fault[0]);
  return names;
}

TEST(FaultyKernelsTest, WithoutAFaultAllAgree) {
  simt::SetFault(0);
  RunEveryKernel();
}

// In orders of threads that differ: one that does not wait may be lucky.
TEST(FaultyKernelsDeathTest, EveryFaultIsNoticed) {
  const std::vector<std::string> faults = Faults();
  ASSERT_GE(faults.size(), 12U);
  for (std::size_t i = 0; i < faults.size(); ++i) {
    SCOPED_TRACE(faults[i]);
    EXPECT_DEATH(
        {
          simt::SetFault(static_cast<int>(i) + 1);
          for (std::uint64_t seed = 1; seed <= 3; ++seed) {
            simt::SetSeed(seed);
            RunEveryKernel();
            if (::testing::Test::HasFailure()) {
              std::fprintf(stderr, "differs from the oracle\n");
              std::abort();
            }
          }
        },
        "simt: block|differs from the oracle|misaligned address");
  }
}

}  // namespace
}  // namespace neuroshard::cuda
