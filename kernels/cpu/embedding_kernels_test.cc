#include "kernels/cpu/embedding_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/api/embedding_op.h"
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
      update.optimizer = with_state ? Optimizer::kRowwiseAdagrad : Optimizer::kSgd;
      update.momentum1 = with_state ? state.data() : nullptr;
      update.learning_rate = 0.25F;
      update.scratch = steps.data();

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

// Of optimizers with state in every column: neither weights nor state of other rows, nor what is
// behind them, are written.
TEST_P(KernelTest, UpdatesByRowLeaveOtherRowsAlone) {
  const std::vector<std::uint64_t> keys = {1U << 4 | 0, 1U << 4 | 2, 3U << 4 | 1};
  for (std::int64_t cols = 1; cols <= 140; ++cols) {
    for (const Optimizer optimizer :
         {Optimizer::kAdagrad, Optimizer::kAdam, Optimizer::kPartialRowwiseAdam, Optimizer::kLamb,
          Optimizer::kLarsSgd}) {
      std::vector<float> gradient(3 * cols + 16, 2.0F), weights(5 * cols + 16, 1.0F);
      std::vector<float> momentum1(5 * cols + 16, 0.0F), momentum2(momentum1);
      std::vector<float> scratch(UpdateScratchFloats(optimizer, 3, cols));
      UpdateArguments update;
      update.gradients = {gradient.data(), cols, keys.data(), 15, nullptr, 3};
      update.row_shift = 4;
      update.cols = cols;
      update.weights = weights.data();
      update.optimizer = optimizer;
      update.momentum1 = momentum1.data();
      update.momentum2 = momentum2.data();
      update.learning_rate = 0.25F;
      update.eta = 1;
      update.correction1 = update.correction2 = 1;
      update.scratch = scratch.data();

      UpdateRows(update);

      for (std::int64_t i = 0; i < 5 * cols + 16; ++i) {
        // The first step of each is the learning rate, all gradients being alike.
        const bool updated = i / cols == 1 || i / cols == 3;
        ASSERT_NEAR(weights[i], updated ? 0.75F : 1.0F, 1e-5) << cols << " columns, index " << i;
        ASSERT_EQ(momentum1[i] != 0, updated) << cols << " columns, index " << i;
        if (optimizer == Optimizer::kPartialRowwiseAdam) continue;
        ASSERT_EQ(momentum2[i] != 0, updated && StateOfRow(optimizer, 1).momentum2 > 0);
      }
      if (optimizer != Optimizer::kPartialRowwiseAdam) continue;
      for (std::size_t row = 0; row < momentum2.size(); ++row) {
        ASSERT_EQ(momentum2[row] != 0, row == 1 || row == 3) << cols << " columns, row " << row;
      }
    }
  }
}

TEST_P(KernelTest, WithoutOffsetsRowsAreGatheredAndNothingElseIsWritten) {
  const std::vector<std::uint64_t> keys = {2, 0, 2};
  for (std::int64_t cols = 1; cols <= 140; ++cols) {
    std::vector<float> rows(3 * cols + 16), output(3 * cols + 16, kPoison);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);

    PoolRows({.list = {rows.data(), cols, keys.data(), ~std::uint64_t{0}, nullptr, 3},
              .cols = cols,
              .output = output.data(),
              .output_stride = cols});

    for (std::int64_t i = 0; i < 3 * cols; ++i) {
      ASSERT_EQ(output[i], rows[keys[i / cols] * cols + i % cols]) << cols;
    }
    for (std::size_t i = 3 * cols; i < output.size(); ++i) ASSERT_TRUE(std::isnan(output[i]));
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
