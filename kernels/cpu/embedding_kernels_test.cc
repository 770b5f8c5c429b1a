#include "kernels/cpu/embedding_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/cpu/testing/chosen_instruction_set.h"

namespace neuroshard {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

class KernelTest : public ::testing::TestWithParam<std::int64_t> {
  ChosenInstructionSet chosen_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(All, KernelTest, ::testing::ValuesIn(SupportedInstructionSets()),
                         [](const auto& target) { return hwy::TargetName(target.param); });

// Outputs and weights sit between poisoned columns: every value of the own columns is written, no
// other is.
TEST_P(KernelTest, PoolRowsWritesItsColumnsAndNothingElse) {
  const std::vector<std::uint64_t> keys = {0, 1, 1};
  const std::vector<std::int64_t> offsets = {0, 2, 2, 3};
  for (std::int64_t cols = 1; cols <= 140; ++cols) {
    std::vector<float> rows(2 * cols + 16, 1.0F);
    const std::int64_t stride = cols + 40;
    std::vector<float> output(3 * stride, kPoison);
    PoolArguments pool;
    pool.list = {rows.data(), cols, keys.data(), ~std::uint64_t{0}, nullptr, 3};
    pool.cols = cols;
    pool.offsets = offsets.data();
    pool.batch_size = 3;
    pool.output = output.data() + 20;
    pool.output_stride = stride;

    PoolRows(pool);

    const float expected[] = {2, 0, 1};
    for (std::int64_t b = 0; b < 3; ++b) {
      for (std::int64_t c = 0; c < stride; ++c) {
        const float value = output[b * stride + c];
        if (c >= 20 && c < 20 + cols) {
          ASSERT_EQ(value, expected[b]) << cols;
        } else {
          ASSERT_TRUE(std::isnan(value)) << cols;
        }
      }
    }
  }
}

TEST_P(KernelTest, UpdateRowsLeavesOtherRowsAlone) {
  const std::vector<std::uint64_t> keys = {1U << 4 | 0, 1U << 4 | 2, 3U << 4 | 1};
  for (std::int64_t cols = 1; cols <= 140; ++cols) {
    for (const bool with_state : {false, true}) {
      std::vector<float> gradient(3 * cols + 16, 2.0F), weights(5 * cols + 16, 1.0F);
      std::vector<float> state(5), steps(3);
      UpdateArguments update;
      update.gradients = {gradient.data(), cols, keys.data(), 15, nullptr, 3};
      update.row_shift = 4;
      update.cols = cols;
      update.weights = weights.data();
      update.state = with_state ? state.data() : nullptr;
      update.learning_rate = 0.25F;
      update.steps = steps.data();

      UpdateRows(update);

      // Row 1 has gradient 4 and row 3 has 2; Adagrad's first step is the learning rate whatever
      // the gradient.
      const float row1 = with_state ? 0.75F : 0.0F, row3 = with_state ? 0.75F : 0.5F;
      const float expected[] = {1, row1, 1, row3, 1};
      for (std::int64_t i = 0; i < 5 * cols; ++i) {
        ASSERT_NEAR(weights[i], expected[i / cols], 1e-6) << cols << " columns, index " << i;
      }
      for (std::size_t i = 5 * cols; i < weights.size(); ++i) ASSERT_EQ(weights[i], 1.0F);
      if (with_state) {
        EXPECT_EQ(state, (std::vector<float>{0, 16, 0, 4, 0}));
      }
    }
  }
}

TEST_P(KernelTest, FillPeriodicContinuesAcrossPeriods) {
  constexpr std::int64_t kPeriod = 37, kCount = 1000;
  std::vector<float> block(kPeriod + 16);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<float>(i % kPeriod);
  const auto out = hwy::AllocateAligned<float>(kCount + 16);
  FillPeriodic(out.get(), kCount, block.data(), kPeriod, 5);
  for (std::int64_t i = 0; i < kCount; ++i)
    ASSERT_EQ(out[i], static_cast<float>((i + 5) % kPeriod));
}

}  // namespace
}  // namespace neuroshard
