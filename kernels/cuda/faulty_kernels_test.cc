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
#include "common/base/random.h"
#include "kernels/cuda/gpu_embedding_op.h"
#include "kernels/cuda/kernel_launches.h"
#include "kernels/cuda/testing/emulated_gpu.h"
#include "kernels/cuda/testing/simt_emulator.h"
#include "kernels/indices/lookup_generator.h"
#include "tests/support/op_beside_oracle.h"

namespace neuroshard::cuda {
namespace {

using ::neuroshard::testing::OpBesideOracle;
using ::neuroshard::testing::RandomLookups;

// Every kernel once, beside the oracle.
void RunEveryKernel() {
  auto gpu = std::make_shared<EmulatedGpu>(64 * kMiB);
  for (const Optimizer optimizer : {Optimizer::kRowwiseAdagrad, Optimizer::kSgd}) {
    Random random(3);
    EmbeddingOpSpec spec;
    spec.batch_size = 12;
    spec.optimizer = optimizer;
    std::vector<LookupBatch> inputs;
    for (const std::int64_t cols : {4, 12, 64, 128, 200}) {
      spec.tables.push_back({70, cols, cols == 64 ? PoolingMode::kMean : PoolingMode::kSum});
      // Bags beyond kLongestBag, rows that occur in many chunks.
      inputs.push_back(RandomLookups(random, cols == 12 ? 3 : 70, spec.batch_size,
                                     cols == 4 ? 4000 : 40, cols == 12));
    }
    for (const std::int64_t cols : {8, 300}) {
      spec.tables.push_back({70, cols, PoolingMode::kNone});
      inputs.push_back(RandomLookups(random, 70, spec.batch_size, 90, false));
    }
    OpBesideOracle pair(GpuEmbeddingOp::Create(gpu, spec).value(), spec, inputs, random);
    pair.ForwardAgrees();
    for (int step = 0; step < 2; ++step) pair.BackwardAgrees(random, 2e-5);
  }

  EmbeddingOpSpec spec;
  spec.batch_size = 300;
  spec.tables = {{1000, 4, PoolingMode::kSum}};
  const LookupPlan plan = PlanZipfLookups({1000, 300, 5, false, 1}, 0.5).value();
  const auto forward = [&](auto&& set_inputs) {
    auto op = GpuEmbeddingOp::Create(gpu, spec).value();
    EXPECT_TRUE(set_inputs(*op).ok());
    op->Forward();
    return op->Output();
  };
  EXPECT_EQ(forward([&](EmbeddingOp& op) { return op.GenerateInputs({plan}); }),
            forward([&](EmbeddingOp& op) { return op.SetInputs({ExpandLookups(plan)}); }));

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
