#include "kernels/cpu/cpu_embedding_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/bytes.h"
#include "common/base/random.h"
#include "kernels/api/testing/op_contents.h"
#include "kernels/cpu/embedding_kernels.h"
#include "kernels/cpu/testing/chosen_instruction_set.h"
#include "kernels/cpu/testing/embedding_oracle.h"
#include "tests/support/op_beside_oracle.h"

namespace neuroshard {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::OpBesideOracle;
using testing::RandomLookups;
using testing::RandomNumbers;

std::shared_ptr<MemoryArena> Arena() { return MemoryArena::Create(256 * kMiB).value(); }

OpBesideOracle BesideOracle(const EmbeddingOpSpec& spec, std::vector<LookupBatch> inputs,
                            Random& random, std::shared_ptr<MemoryArena> arena = Arena()) {
  return {CpuEmbeddingOp::Create(std::move(arena), spec).value(), spec, std::move(inputs), random};
}

// Every instruction set that this machine can run, with every optimizer. The epsilon is one that
// shows where it is added, and keeps Adam from dividing a gradient that cancelled out by itself.
class InstructionSetTest : public ::testing::TestWithParam<std::tuple<std::int64_t, Optimizer>> {
 protected:
  EmbeddingOpSpec Spec() const {
    EmbeddingOpSpec spec;
    spec.optimizer = std::get<1>(GetParam());
    spec.epsilon = 0.01F;
    return spec;
  }

 private:
  ChosenInstructionSet chosen_{std::get<0>(GetParam())};
};

TEST_P(InstructionSetTest, RandomTablesAgreeWithTheOracle) {
  Random random(11);
  auto arena = Arena();
  for (int trial = 0; trial < 12; ++trial) {
    EmbeddingOpSpec spec = Spec();
    spec.batch_size = random.Between(1, 40);
    spec.learning_rate = 0.1F;
    std::vector<LookupBatch> inputs;
    const std::int64_t tables = random.Between(1, 4);
    for (std::int64_t t = 0; t < tables; ++t) {
      const std::int64_t rows = random.Between(1, 300);
      const PoolingMode mode = kWords<PoolingMode>[random.Below(3)].value;
      spec.tables.push_back({rows, random.Between(1, 300), mode});
      inputs.push_back(RandomLookups(random, rows, spec.batch_size, 12,
                                     mode != PoolingMode::kNone && random.Below(2) == 0));
    }
    OpBesideOracle pair = BesideOracle(spec, inputs, random, arena);
    pair.ForwardAgrees();
    for (int step = 0; step < 2; ++step) pair.BackwardAgrees(random);
    pair.ForwardAgrees();
  }
}

TEST_P(InstructionSetTest, EveryWidthAgreesWithTheOracle) {
  Random random(12);
  auto arena = Arena();
  for (std::int64_t cols = 1; cols <= 300; cols += cols < 70 ? 1 : 13) {
    EmbeddingOpSpec spec = Spec();
    spec.batch_size = 5;
    spec.tables = {
        {9, cols, PoolingMode::kSum}, {7, cols, PoolingMode::kMean}, {8, cols, PoolingMode::kNone}};
    std::vector<LookupBatch> inputs = {RandomLookups(random, 9, 5, 6, false),
                                       RandomLookups(random, 7, 5, 6, true),
                                       RandomLookups(random, 8, 5, 6, false)};
    OpBesideOracle pair = BesideOracle(spec, inputs, random, arena);
    pair.ForwardAgrees();
    pair.BackwardAgrees(random);
  }
}

TEST_P(InstructionSetTest, OneRowHitAHundredThousandTimes) {
  Random random(13);
  EmbeddingOpSpec spec = Spec();
  spec.batch_size = 1000;
  spec.learning_rate = 0.001F;
  spec.tables = {{50, 20, PoolingMode::kSum}};
  LookupBatch batch;
  batch.offsets.push_back(0);
  for (int sample = 0; sample < 1000; ++sample) {
    batch.ids.insert(batch.ids.end(), 100, 17);
    batch.ids.push_back(sample % 50);
    batch.offsets.push_back(static_cast<std::int64_t>(batch.ids.size()));
  }
  OpBesideOracle pair = BesideOracle(spec, {batch}, random);
  pair.ForwardAgrees();
  // The relative error of a sum that cancels is twice as large in its square.
  const bool squares_columns = StateOfRow(spec.optimizer, 20).momentum1 == 20;
  pair.BackwardAgrees(random, squares_columns ? 1e-4 : 2e-5);
}

std::string InstructionSetName(
    const ::testing::TestParamInfo<std::tuple<std::int64_t, Optimizer>>& info) {
  return std::string(hwy::TargetName(std::get<0>(info.param))) + "_" +
         std::string(ToText(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(
    All, InstructionSetTest,
    ::testing::Combine(::testing::ValuesIn(SupportedInstructionSets()),
                       ::testing::ValuesIn(CpuEmbeddingOp::Abilities().optimizers)),
    InstructionSetName);

TEST(CpuEmbeddingOpTest, BackwardIsTheDerivativeOfForward) {
  Random random(14);
  EmbeddingOpSpec spec;
  spec.batch_size = 12;
  spec.learning_rate = 1.0F;
  spec.tables = {{6, 5, PoolingMode::kMean}};
  const LookupBatch batch = RandomLookups(random, 6, 12, 5, true);
  OpBesideOracle pair = BesideOracle(spec, {batch}, random);
  const std::vector<float> gradient = RandomNumbers(random, 12 * 5);
  ASSERT_TRUE(testing::ContentsOf(pair.op())->SetOutputGradient(gradient).ok());
  const std::vector<float> before = testing::ContentsOf(pair.op())->Weights(0);

  pair.op().Backward();

  const std::vector<float> after = testing::ContentsOf(pair.op())->Weights(0);
  // loss = sum of output x gradient, differentiated numerically in double precision.
  const auto loss = [&](std::size_t weight, double change) {
    OracleTable table = pair.oracle(0);
    table.weights[weight] += change;
    const std::vector<double> output = OracleForward(table, batch);
    double sum = 0;
    for (std::size_t i = 0; i < output.size(); ++i)
      sum += output[i] * static_cast<double>(gradient[i]);
    return sum;
  };
  for (std::size_t weight = 0; weight < before.size(); ++weight) {
    const double derivative = (loss(weight, 1e-3) - loss(weight, -1e-3)) / 2e-3;
    EXPECT_NEAR(before[weight] - after[weight], derivative, 1e-5) << weight;
  }
}

TEST(CpuEmbeddingOpTest, NothingIsLeftOfWhatTheMemoryHeldBefore) {
  auto arena = Arena();
  arena->Reset();
  std::memset(arena->Take(16 * kMiB), 0xff, 16 * kMiB);  // NaN everywhere
  Random random(15);
  EmbeddingOpSpec spec;
  spec.batch_size = 33;
  spec.optimizer = Optimizer::kRowwiseAdagrad;
  spec.tables = {{100, 7, PoolingMode::kSum}, {100, 64, PoolingMode::kMean}};
  auto op = CpuEmbeddingOp::Create(arena, spec).value();
  const auto sane = [](const std::vector<float>& values) {
    return std::all_of(values.begin(), values.end(), [](float value) {
      return value == 0 || (std::isnormal(value) && std::abs(value) <= 1);
    });
  };
  ASSERT_TRUE(op->SetInputs({RandomLookups(random, 100, 33, 5, false),
                             RandomLookups(random, 100, 33, 5, true)})
                  .ok());
  op->Forward();
  EXPECT_TRUE(sane(testing::ContentsOf(*op)->Output()));
  for (int pass = 0; pass < 200; ++pass) op->Backward();
  for (int table = 0; table < 2; ++table) {
    EXPECT_TRUE(sane(testing::ContentsOf(*op)->Weights(table)));
    EXPECT_TRUE(sane(testing::ContentsOf(*op)->OptimizerState(table)));
  }
}

TEST(CpuEmbeddingOpTest, SeedsDecideTheInitialWeights) {
  EmbeddingOpSpec spec;
  spec.batch_size = 1;
  spec.tables = {{100, 10, PoolingMode::kSum}, {100, 10, PoolingMode::kSum}};
  const auto weights = [&](std::uint64_t seed, int table) {
    spec.seed = seed;
    return testing::ContentsOf(*CpuEmbeddingOp::Create(Arena(), spec).value())->Weights(table);
  };
  EXPECT_EQ(weights(1, 0), weights(1, 0));
  EXPECT_NE(weights(1, 0), weights(1, 1));
  EXPECT_NE(weights(1, 0), weights(2, 0));
  EXPECT_THAT(weights(1, 0), Each(::testing::AllOf(::testing::Ge(-0.05F), ::testing::Lt(0.05F))));
}

TEST(CpuEmbeddingOpTest, TooLargeIsAValueThatQuotesBothSizes) {
  EmbeddingOpSpec spec;
  spec.batch_size = 16;
  for (const std::int64_t rows : {std::int64_t{1'000'000}, std::int64_t{1} << 56}) {
    spec.tables = {{rows, 128, PoolingMode::kSum}};
    const Status status = CpuEmbeddingOp::Create(Arena(), spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(Message(status), HasSubstr("256.00 MiB"));
  }
  spec.tables = {{1'000'000, 128, PoolingMode::kSum}};
  EXPECT_THAT(Message(CpuEmbeddingOp::Create(Arena(), spec).status()), HasSubstr("488.30 MiB"));
  spec.batch_size = 1 << 20;  // times the rows it is beyond the sort keys, too
  spec.tables[0].rows = std::int64_t{1} << 48;
  EXPECT_EQ(CpuEmbeddingOp::Create(Arena(), spec).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// What each optimizer's state takes is asked for before anything is touched.
TEST(CpuEmbeddingOpTest, StateCountsBeforeItIsTaken) {
  EmbeddingOpSpec spec;
  spec.batch_size = 1;
  spec.tables = {{1 << 16, 40, PoolingMode::kSum}};
  const auto create = [&spec](std::int64_t bytes) {
    return CpuEmbeddingOp::Create(MemoryArena::Create(bytes).value(), spec).status();
  };
  for (const auto& [optimizer, floats_a_row] :
       {std::pair(Optimizer::kSgd, 40), std::pair(Optimizer::kRowwiseAdagrad, 41),
        std::pair(Optimizer::kAdagrad, 80), std::pair(Optimizer::kLarsSgd, 80),
        std::pair(Optimizer::kPartialRowwiseAdam, 81), std::pair(Optimizer::kAdam, 120),
        std::pair(Optimizer::kLamb, 120)}) {
    spec.optimizer = optimizer;
    const std::int64_t bytes = std::int64_t{4 << 16} * floats_a_row;
    EXPECT_EQ(create(bytes).code(), absl::StatusCode::kResourceExhausted) << ToText(optimizer);
    EXPECT_EQ(create(bytes + 4096), absl::OkStatus()) << ToText(optimizer);
  }
}

// Vectors of tables without pooling are as many as their ids: they come and go with the inputs.
// 16 bytes to sort and 32 of vectors and gradients for each id: either fits, both do not.
TEST(CpuEmbeddingOpTest, VectorsAndSortingFitTogetherOrNotAtAll) {
  constexpr std::int64_t kIds = 100'000;
  EmbeddingOpSpec spec;
  spec.batch_size = 1;
  spec.tables = {{1000, 4, PoolingMode::kNone}};
  LookupBatch batch;
  batch.ids.assign(kIds, 7);
  batch.offsets = {0, kIds};
  const auto set_inputs = [&](std::int64_t bytes) {
    return CpuEmbeddingOp::Create(MemoryArena::Create(bytes).value(), spec)
        .value()
        ->SetInputs({batch});
  };
  EXPECT_EQ(set_inputs(40 * kIds).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(set_inputs(56 * kIds), absl::OkStatus());
}

TEST(CpuEmbeddingOpTest, VectorsWithoutPoolingTakeMemoryByTheirIds) {
  EmbeddingOpSpec spec;
  spec.batch_size = 64;
  spec.tables = {{1000, 256, PoolingMode::kNone}, {10, 4, PoolingMode::kSum}};
  auto op = CpuEmbeddingOp::Create(MemoryArena::Create(8 * kMiB).value(), spec).value();
  Random random(21);
  const auto inputs = [&](std::int64_t ids) -> std::vector<LookupBatch> {
    LookupBatch batch;
    batch.ids.assign(ids, 7);
    batch.offsets.assign(65, ids);
    batch.offsets[0] = 0;
    return {batch, RandomLookups(random, 10, 64, 3, true)};
  };
  ASSERT_EQ(op->SetInputs(inputs(2000)), absl::OkStatus());  // 4 MiB of vectors and gradients
  op->Forward();
  const std::vector<float> output = testing::ContentsOf(*op)->Output();
  EXPECT_EQ(output.size(), 2000U * 256 + 64 * 4);
  const Status status = op->SetInputs(inputs(4000));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(Message(status), HasSubstr("without pooling"));
  op->Forward();
  EXPECT_EQ(testing::ContentsOf(*op)->Output(), output);
  ASSERT_EQ(op->SetInputs(inputs(0)), absl::OkStatus());
  EXPECT_EQ(testing::ContentsOf(*op)->Output().size(), 64U * 4);
  ASSERT_EQ(op->SetInputs(inputs(3000)), absl::OkStatus());  // what was freed is used again
  LookupBatch weighted = inputs(5)[0];
  weighted.weights.assign(5, 1.0F);
  EXPECT_THAT(Message(op->SetInputs({weighted, inputs(1)[1]})),
              HasSubstr("inputs[0]: has weights"));
}

TEST(CpuEmbeddingOpTest, SpecsOutOfRangeAreNamed) {
  const auto error = [](auto change) {
    EmbeddingOpSpec spec;
    spec.batch_size = 4;
    spec.tables = {{10, 4, PoolingMode::kSum}};
    change(spec);
    const Status status = CpuEmbeddingOp::Create(Arena(), spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return Message(status);
  };
  EXPECT_THAT(error([](auto& spec) { spec.batch_size = 0; }), HasSubstr("batch_size"));
  EXPECT_THAT(error([](auto& spec) { spec.tables[0].cols = 0; }), HasSubstr("tables[0]"));
  EXPECT_THAT(error([](auto& spec) { spec.tables[0].rows = -3; }), HasSubstr("-3"));
  EXPECT_THAT(error([](auto& spec) { spec.beta2 = 1; }), HasSubstr("beta2: must be in [0, 1)"));
  EXPECT_THAT(error([](auto& spec) { spec.tables[0].weight_dtype = DataType::kFp16; }),
              HasSubstr("tables[0]: weight_dtype: this device has fp32, got fp16"));
}

}  // namespace
}  // namespace neuroshard
