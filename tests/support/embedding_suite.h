// The tests that every embedding device has to pass, whatever it is made of: the same seeded random
// tables and ids go to the device and to the oracle (kernels/cpu/testing/embedding_oracle.h).
//
//   class CpuDevices { static Device Make(std::int64_t memory_bytes); ... };   // see Devices below
//   INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, EmbeddingSuite, CpuDevices);
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/random.h"
#include "common/domain/reuse_histogram.h"
#include "common/domain/testing/reuse_histograms.h"
#include "kernels/api/embedding_op.h"
#include "kernels/api/testing/op_contents.h"
#include "kernels/indices/lookup_generator.h"
#include "kernels/indices/testing/zipf_lookups.h"
#include "tests/support/op_beside_oracle.h"
#include "tests/support/tables_in_host_memory.h"

namespace neuroshard::testing {

// Devices: `static const char* Unavailable()` (null, or why there is no such device: the tests are
// skipped), `StatusOr<std::unique_ptr<EmbeddingOp>> Create(const EmbeddingOpSpec&)` of an object
// with `memory_bytes` of about a quarter GiB or more, `kTypes` of weights, `kManyHits` for tests of
// skew, `std::int64_t memory_bytes()`.
template <typename Devices>
class EmbeddingSuite : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = Devices::Unavailable(); reason != nullptr) {
      GTEST_SKIP() << "SKIPPED, NOT TESTED: " << reason;
    }
    devices_ = std::make_unique<Devices>();
  }

  OpBesideOracle Make(const EmbeddingOpSpec& spec, std::vector<LookupBatch> inputs,
                      Random& random) {
    auto created = devices_->Create(spec);
    if (!created.ok()) throw std::runtime_error(Message(created.status()));
    return {std::move(created).value(), spec, std::move(inputs), random};
  }

  std::unique_ptr<Devices> devices_;
};
TYPED_TEST_SUITE_P(EmbeddingSuite);

TYPED_TEST_P(EmbeddingSuite, RandomTablesAgreeWithTheOracle) {
  // Also bags so short that a thread of a GPU pools two or four of them.
  constexpr std::int64_t kLongest[] = {12, 5, 2};
  Random random(11);
  for (int trial = 0; trial < 12; ++trial) {
    EmbeddingOpSpec spec;
    spec.batch_size = random.Between(1, 40);
    spec.optimizer = trial % 2 == 0 ? Optimizer::kSgd : Optimizer::kRowwiseAdagrad;
    spec.learning_rate = 0.1F;
    std::vector<LookupBatch> inputs;
    const std::int64_t tables = random.Between(1, 6);
    for (std::int64_t t = 0; t < tables; ++t) {
      const std::int64_t rows = random.Between(1, 300);
      spec.tables.push_back({rows, random.Between(1, 300),
                             random.Below(2) == 0 ? PoolingMode::kSum : PoolingMode::kMean,
                             TypeParam::kTypes[random.Below(std::size(TypeParam::kTypes))]});
      inputs.push_back(RandomLookups(random, rows, spec.batch_size, kLongest[(trial + t) % 3],
                                     trial % 3 != 0 && t % 2 == 0));
    }
    OpBesideOracle pair = this->Make(spec, inputs, random);
    pair.ForwardAgrees();
    for (int step = 0; step < 2; ++step) pair.BackwardAgrees(random);
    pair.ForwardAgrees();
  }
}

TYPED_TEST_P(EmbeddingSuite, WidthsFromOneTo256InOneLaunch) {
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kRowwiseAdagrad}) {
    Random random(12);
    EmbeddingOpSpec spec;
    spec.batch_size = 17;
    spec.optimizer = optimizer;
    std::vector<LookupBatch> inputs;
    for (const std::int64_t cols : {4,   8,   12,  16, 20, 32, 48, 64, 96, 100, 128, 132, 160,
                                    192, 252, 256, 1,  2,  3,  5,  7,  31, 33,  127, 255}) {
      const std::int64_t rows = cols % 3 == 0 ? 1 : 40;  // tables of one row among them
      spec.tables.push_back({rows, cols, PoolingMode::kSum});
      inputs.push_back(RandomLookups(random, rows, spec.batch_size, 9, false));
    }
    OpBesideOracle pair = this->Make(spec, inputs, random);
    pair.ForwardAgrees();
    pair.BackwardAgrees(random);
  }
}

TYPED_TEST_P(EmbeddingSuite, EveryOptimizer) {
  for (const auto& [optimizer, text] : kWords<Optimizer>) {
    if (optimizer == Optimizer::kNone) continue;
    SCOPED_TRACE(text);
    Random random(22);
    EmbeddingOpSpec spec;
    spec.batch_size = 31;
    spec.optimizer = optimizer;
    spec.learning_rate = 0.1F;
    spec.epsilon = 1e-4F;  // so that a gradient that cancels out is not divided by itself
    std::vector<LookupBatch> inputs;
    for (const std::int64_t cols : {1, 6, 64, 132, 300, 1028}) {
      const PoolingMode mode = cols == 64    ? PoolingMode::kMean
                               : cols == 300 ? PoolingMode::kNone
                                             : PoolingMode::kSum;
      spec.tables.push_back({20, cols, mode});
      // Rows that occur in many chunks among them.
      inputs.push_back(RandomLookups(random, cols == 6 ? 3 : 20, spec.batch_size, 12, cols == 132));
    }
    OpBesideOracle pair = this->Make(spec, inputs, random);
    for (int step = 0; step < 3; ++step) pair.BackwardAgrees(random, 2e-5);
    pair.ForwardAgrees();
  }
}

// Unpooled tables of every width beside pooled ones; ids that occur often, once and not at all.
TYPED_TEST_P(EmbeddingSuite, UnpooledTables) {
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kRowwiseAdagrad}) {
    Random random(21);
    EmbeddingOpSpec spec;
    spec.batch_size = 23;
    spec.optimizer = optimizer;
    spec.learning_rate = 0.1F;
    std::vector<LookupBatch> inputs;
    for (const std::int64_t cols : {4, 3, 20, 128, 257, 1028}) {
      const PoolingMode mode = cols == 20 ? PoolingMode::kMean : PoolingMode::kNone;
      spec.tables.push_back(
          {50, cols, mode, TypeParam::kTypes[spec.tables.size() % std::size(TypeParam::kTypes)]});
      inputs.push_back(RandomLookups(random, 50, spec.batch_size, cols == 3 ? 200 : 9, false));
    }
    LookupBatch none;
    none.offsets.assign(24, 0);
    spec.tables.push_back({10, 8, PoolingMode::kNone});
    inputs.push_back(none);
    OpBesideOracle pair = this->Make(spec, inputs, random);
    pair.ForwardAgrees();
    for (int step = 0; step < 2; ++step) pair.BackwardAgrees(random);
    pair.ForwardAgrees();
  }
}

TYPED_TEST_P(EmbeddingSuite, TablesInHostMemoryGiveWhatDeviceMemoryGives) {
  for (const auto& [optimizer, text] : kWords<Optimizer>) {
    if (optimizer == Optimizer::kNone) continue;
    SCOPED_TRACE(text);
    CompareWithDeviceMemory(
        [this](const EmbeddingOpSpec& spec) { return this->devices_->Create(spec); }, optimizer,
        TypeParam::kTypes, 2);
  }
}

TYPED_TEST_P(EmbeddingSuite, WideRows) {
  Random random(13);
  EmbeddingOpSpec spec;
  spec.batch_size = 9;
  spec.optimizer = Optimizer::kRowwiseAdagrad;
  std::vector<LookupBatch> inputs;
  for (const std::int64_t cols : {260, 512, 1000, 1028, 2048}) {
    spec.tables.push_back({11, cols, PoolingMode::kMean});
    inputs.push_back(RandomLookups(random, 11, spec.batch_size, 20, cols == 512));
  }
  OpBesideOracle pair = this->Make(spec, inputs, random);
  pair.ForwardAgrees();
  pair.BackwardAgrees(random);
}

// Runs of one row that begin and end anywhere, over many chunks and blocks, beside rows that occur
// once; both ends of the table.
TYPED_TEST_P(EmbeddingSuite, RunsOfEveryLength) {
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kRowwiseAdagrad}) {
    Random random(14);
    EmbeddingOpSpec spec;
    spec.batch_size = 64;
    spec.optimizer = optimizer;
    spec.learning_rate = 0.01F;
    std::vector<LookupBatch> inputs;
    for (const std::int64_t cols : {4, 8, 28, 40, 52, 64}) {
      const std::int64_t rows = 400;
      spec.tables.push_back({rows, cols, PoolingMode::kSum});
      std::vector<std::int64_t> ids = {0, rows - 1};
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::uint64_t kind = random.Below(5);
        const std::int64_t length = kind == 0   ? 0
                                    : kind == 1 ? random.Between(1, 700)
                                    : kind == 2 ? 32 * random.Between(1, 4)
                                                : random.Between(1, 40);
        ids.insert(ids.end(), length, row);
      }
      random.Shuffle(ids);
      LookupBatch batch;
      for (std::int64_t b = 0; b <= spec.batch_size; ++b) {
        batch.offsets.push_back(static_cast<std::int64_t>(ids.size()) * b / spec.batch_size);
      }
      batch.ids = std::move(ids);
      inputs.push_back(std::move(batch));
    }
    OpBesideOracle pair = this->Make(spec, inputs, random);
    pair.ForwardAgrees();
    pair.BackwardAgrees(random, 2e-5);
  }
}

TYPED_TEST_P(EmbeddingSuite, OneRowHitVeryOften) {
  constexpr std::int64_t kHits = TypeParam::kManyHits, kBatch = 1000;
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kRowwiseAdagrad}) {
    Random random(15);
    EmbeddingOpSpec spec;
    spec.batch_size = kBatch;
    spec.optimizer = optimizer;
    spec.learning_rate = 100.0F / static_cast<float>(kHits);
    spec.tables = {{50, 20, PoolingMode::kSum}, {30, 8, PoolingMode::kSum}};
    LookupBatch hot;
    hot.offsets.push_back(0);
    for (std::int64_t sample = 0; sample < kBatch; ++sample) {
      hot.ids.insert(hot.ids.end(), kHits / kBatch, 17);
      hot.ids.push_back(sample % 50);
      hot.offsets.push_back(static_cast<std::int64_t>(hot.ids.size()));
    }
    OpBesideOracle pair =
        this->Make(spec, {hot, RandomLookups(random, 30, kBatch, 3, true)}, random);
    pair.ForwardAgrees();
    pair.BackwardAgrees(random, 2e-5);
  }
}

TYPED_TEST_P(EmbeddingSuite, BagsFromNoneToAHundredThousandIds) {
  for (const PoolingMode mode : {PoolingMode::kSum, PoolingMode::kMean}) {
    Random random(16);
    EmbeddingOpSpec spec;
    spec.tables = {{500, 12, mode}, {500, 6, mode}};
    std::vector<LookupBatch> inputs;
    for (const bool weighted : {false, true}) {
      LookupBatch batch;
      batch.offsets.push_back(0);
      for (const std::int64_t length :
           {0, 0, 1, 100'000, 0, 7, 8, 9, 511, 512, 513, 1023, 1024, 1025, 1536, 5000, 0}) {
        for (std::int64_t i = 0; i < length; ++i) {
          batch.ids.push_back(random.Between(0, 499));
          if (weighted) batch.weights.push_back(static_cast<float>(random.UniformReal()));
        }
        batch.offsets.push_back(static_cast<std::int64_t>(batch.ids.size()));
      }
      inputs.push_back(std::move(batch));
    }
    spec.batch_size = static_cast<std::int64_t>(inputs[0].offsets.size()) - 1;
    spec.learning_rate = 1e-4F;
    OpBesideOracle pair = this->Make(spec, inputs, random);
    pair.ForwardAgrees();
    pair.BackwardAgrees(random);
  }
}

TYPED_TEST_P(EmbeddingSuite, TheSameTwiceGivesTheSameBits) {
  EmbeddingOpSpec spec;
  spec.batch_size = 50;
  spec.optimizer = Optimizer::kRowwiseAdagrad;
  spec.tables = {{90, 64, PoolingMode::kSum}, {5, 10, PoolingMode::kMean}};
  const auto run = [&] {
    Random random(17);
    OpBesideOracle pair = this->Make(
        spec, {RandomLookups(random, 90, 50, 90, true), RandomLookups(random, 5, 50, 90, false)},
        random);
    for (int i = 0; i < 3; ++i) {
      pair.op().Forward();
      pair.op().Backward();
    }
    return std::tuple(ContentsOf(pair.op())->Output(), ContentsOf(pair.op())->Weights(0),
                      ContentsOf(pair.op())->Weights(1), ContentsOf(pair.op())->OptimizerState(1));
  };
  EXPECT_EQ(run(), run());
}

TYPED_TEST_P(EmbeddingSuite, NewInputsReplaceOldOnes) {
  Random random(18);
  EmbeddingOpSpec spec;
  spec.batch_size = 20;
  spec.tables = {{100, 6, PoolingMode::kSum}};
  for (const std::int64_t longest : {4, 2000, 1}) {  // also fewer than before
    OpBesideOracle pair =
        this->Make(spec, {RandomLookups(random, 100, 20, longest, longest == 4)}, random);
    pair.ForwardAgrees();
    pair.ForwardAgrees();
    const LookupBatch other = RandomLookups(random, 100, 20, 3, true);
    ASSERT_TRUE(pair.op().SetInputs({RandomLookups(random, 100, 20, 2500, false)}).ok());
    ASSERT_TRUE(pair.op().SetInputs({other}).ok());
    pair.op().Forward();
    const std::vector<float> weights = ContentsOf(pair.op())->Weights(0);
    const std::vector<double> expected =
        OracleForward({100, 6, PoolingMode::kSum, {weights.begin(), weights.end()}, {}, {}}, other);
    const std::vector<float> output = ContentsOf(pair.op())->Output();
    for (std::size_t i = 0; i < output.size(); ++i) ASSERT_NEAR(output[i], expected[i], 1e-5);
  }
}

TYPED_TEST_P(EmbeddingSuite, NoLookupsGiveZerosAndChangeNothing) {
  Random random(19);
  EmbeddingOpSpec spec;
  spec.batch_size = 8;
  spec.tables = {{10, 6, PoolingMode::kMean}, {3, 128, PoolingMode::kSum}};
  LookupBatch none;
  none.offsets.assign(9, 0);
  OpBesideOracle pair = this->Make(spec, {none, none}, random);
  pair.op().Forward();
  EXPECT_THAT(ContentsOf(pair.op())->Output(), ::testing::Each(0.0F));
  const std::vector<float> before = ContentsOf(pair.op())->Weights(0);
  pair.op().Backward();
  EXPECT_EQ(ContentsOf(pair.op())->Weights(0), before);
}

TYPED_TEST_P(EmbeddingSuite, StartsWithOrdinaryValuesThatTheSeedDecides) {
  EmbeddingOpSpec spec;
  spec.batch_size = 30;
  spec.optimizer = Optimizer::kRowwiseAdagrad;
  spec.tables = {{100, 10, PoolingMode::kSum}, {100, 10, PoolingMode::kSum}};
  const auto weights = [&](std::uint64_t seed, int table) {
    spec.seed = seed;
    return ContentsOf(*this->devices_->Create(spec).value())->Weights(table);
  };
  EXPECT_EQ(weights(1, 0), weights(1, 0));
  EXPECT_NE(weights(1, 0), weights(1, 1));
  EXPECT_NE(weights(1, 0), weights(2, 0));
  EXPECT_THAT(weights(1, 0),
              ::testing::Each(::testing::AllOf(::testing::Ge(-0.05F), ::testing::Lt(0.05F))));
  Random random(20);
  auto op = this->devices_->Create(spec).value();
  EXPECT_THAT(ContentsOf(*op)->OptimizerState(0), ::testing::Each(0.0F));
  ASSERT_TRUE(op->SetInputs({RandomLookups(random, 100, 30, 5, false),
                             RandomLookups(random, 100, 30, 5, true)})
                  .ok());
  for (int pass = 0; pass < 200; ++pass) op->Backward();
  const auto sane = [](float value) {
    return value == 0 || (std::isnormal(value) && std::abs(value) <= 1);
  };
  EXPECT_THAT(ContentsOf(*op)->Weights(0), ::testing::Each(::testing::Truly(sane)));
  EXPECT_THAT(ContentsOf(*op)->OptimizerState(1), ::testing::Each(::testing::Truly(sane)));
}

TYPED_TEST_P(EmbeddingSuite, TooLargeIsAValueThatQuotesBothSizes) {
  EmbeddingOpSpec spec;
  spec.batch_size = 16;
  spec.tables = {{std::int64_t{1} << 45, 16, PoolingMode::kSum}};
  const Status huge = this->devices_->Create(spec).status();
  EXPECT_EQ(huge.code(), absl::StatusCode::kResourceExhausted) << huge;
  EXPECT_THAT(Message(huge), ::testing::HasSubstr("2.00 PiB"));
  spec.tables[0].rows = std::int64_t{1} << 60;
  EXPECT_EQ(this->devices_->Create(spec).status().code(), absl::StatusCode::kResourceExhausted);
  spec.tables[0].rows = 1000;
  EXPECT_TRUE(this->devices_->Create(spec).ok());
}

TYPED_TEST_P(EmbeddingSuite, BadInputsAreNamedAndKeepTheOldOnes) {
  EmbeddingOpSpec spec;
  spec.batch_size = 2;
  spec.tables = {{10, 4, PoolingMode::kSum}};
  auto op = this->devices_->Create(spec).value();
  const LookupBatch good = {{1, 2, 3}, {0, 1, 3}, {}};
  ASSERT_TRUE(op->SetInputs({good}).ok());
  op->Forward();
  const std::vector<float> output = ContentsOf(*op)->Output();
  const LookupBatch bad[] = {{{1, 2, 10}, {0, 1, 3}, {}}, {{1, -1, 3}, {0, 1, 3}, {}},
                             {{1, 2, 3}, {0, 3}, {}},     {{1, 2, 3}, {0, 2, 1}, {}},
                             {{1, 2, 3}, {1, 2, 3}, {}},  {{1, 2, 3}, {0, 1, 2}, {}},
                             {{1, 2, 3}, {0, 1, 3}, {1}}, {{1, 2, 3}, {0, 5, 3}, {}}};
  for (const LookupBatch& batch : bad) {
    const Status status = op->SetInputs({batch});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), ::testing::HasSubstr("inputs[0]"));
  }
  EXPECT_EQ(op->SetInputs({good, good}).code(), absl::StatusCode::kInvalidArgument);
  op->Forward();
  EXPECT_EQ(ContentsOf(*op)->Output(), output);
}

// Ids of every kind that are made by the device are those that the host makes, to the bit: so are
// outputs and updated weights.
TYPED_TEST_P(EmbeddingSuite, GeneratedInputsAreThoseOfTheHost) {
  EmbeddingOpSpec spec;
  spec.batch_size = 37;
  spec.learning_rate = 0.1F;
  std::vector<LookupPlan> plans;
  const auto add = [&](std::int64_t cols, PoolingMode mode, const StatusOr<LookupPlan>& plan) {
    ASSERT_TRUE(plan.ok()) << plan.status();
    spec.tables.push_back({plan->rows, cols, mode});
    plans.push_back(*plan);
  };
  const ReuseHistogram histogram = DefaultReuseHistogram();
  for (std::uint64_t seed = 0; seed < 2; ++seed) {  // the second ones replace the first ones
    spec.tables.clear();
    plans.clear();
    add(4, PoolingMode::kSum, PlanLookups({3000, 37, 20.3, false, seed}, histogram));
    add(12, PoolingMode::kMean, PlanLookups({300, 37, 7, true, seed}, histogram));
    add(8, PoolingMode::kSum, PlanZipfLookups({100'000, 37, 60.1, seed == 1, seed}, 1.1));
    add(3, PoolingMode::kSum, PlanZipfLookups({1000, 37, 0.3, false, seed}, 0));
    add(16, PoolingMode::kSum, PlanLookups({10, 37, 0, true, seed}, histogram));
    add(5, PoolingMode::kMean,
        PlanLookups({500, 37, seed == 0 ? 1023.7 : 1024.6, true, seed}, histogram));
    auto op = this->devices_->Create(spec).value();
    const auto run = [&](auto&& set_inputs) {
      for (int t = 0; t < 6; ++t) {
        Random random(t);
        EXPECT_TRUE(
            ContentsOf(*op)
                ->SetWeights(t, RandomNumbers(random, spec.tables[t].rows * spec.tables[t].cols))
                .ok());
      }
      const Status set = set_inputs();
      EXPECT_TRUE(set.ok()) << set;
      op->Forward();
      std::vector<std::vector<float>> results = {ContentsOf(*op)->Output()};
      op->Backward();
      for (int t = 0; t < 6; ++t) results.push_back(ContentsOf(*op)->Weights(t));
      return results;
    };
    const auto generated = run([&] { return op->GenerateInputs(plans); });
    const auto given = run([&] {
      std::vector<LookupBatch> inputs;
      for (const LookupPlan& plan : plans) inputs.push_back(ExpandLookups(plan));
      return op->SetInputs(std::move(inputs));
    });
    EXPECT_EQ(generated, given);
  }
}

// Rows that hold their own number tell which ids were looked up.
TYPED_TEST_P(EmbeddingSuite, GeneratedIdsHaveTheHistogramThatWasAskedFor) {
  constexpr std::int64_t kRows = 6000, kBatch = 30'000;
  EmbeddingOpSpec spec;
  spec.batch_size = kBatch;
  spec.tables = {{kRows, 1, PoolingMode::kSum}};
  auto op = this->devices_->Create(spec).value();
  std::vector<float> numbers(kRows);
  for (std::int64_t row = 0; row < kRows; ++row) numbers[row] = static_cast<float>(row);
  ASSERT_TRUE(ContentsOf(*op)->SetWeights(0, numbers).ok());
  const auto measure = [&](const StatusOr<LookupPlan>& plan) {
    EXPECT_TRUE(op->GenerateInputs({*plan}).ok());
    op->Forward();
    const std::vector<float> output = ContentsOf(*op)->Output();
    return MeasureReuseHistogram(std::vector<std::int64_t>(output.begin(), output.end()));
  };
  const ReuseHistogram wanted = {0.25, 0.2, 0.2, 0.1, 0.1, 0.1, 0.04, 0.01};
  const ReuseHistogram reuse = measure(PlanLookups({kRows, kBatch, 1, false, 3}, wanted));
  const ReuseHistogram zipf = measure(PlanZipfLookups({kRows, kBatch, 1, false, 3}, 0.9));
  const ReuseHistogram predicted = ZipfReuseHistogram(kRows, kBatch, 0.9);
  for (int bin = 0; bin < kReuseBins; ++bin) {
    EXPECT_NEAR(reuse[bin], wanted[bin], 0.005) << bin;
    EXPECT_NEAR(zipf[bin], predicted[bin], 0.03) << bin;
  }
}

TYPED_TEST_P(EmbeddingSuite, PlansForOtherTablesAreNamed) {
  EmbeddingOpSpec spec;
  spec.batch_size = 4;
  spec.tables = {{10, 4, PoolingMode::kSum}, {10, 4, PoolingMode::kSum}};
  auto op = this->devices_->Create(spec).value();
  const LookupPlan good = PlanZipfLookups({10, 4, 3, false, 1}, 0).value();
  const LookupPlan more_rows = PlanZipfLookups({1000, 4, 30, false, 1}, 0).value();
  const LookupPlan more_samples = PlanZipfLookups({10, 5, 3, false, 1}, 0).value();
  EXPECT_TRUE(op->GenerateInputs({good, good}).ok());
  for (const LookupPlan& bad : {more_rows, more_samples}) {
    const Status status = op->GenerateInputs({good, bad});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), ::testing::HasSubstr("inputs[1]"));
  }
  EXPECT_EQ(op->GenerateInputs({good}).code(), absl::StatusCode::kInvalidArgument);
}

REGISTER_TYPED_TEST_SUITE_P(
    EmbeddingSuite, RandomTablesAgreeWithTheOracle, WidthsFromOneTo256InOneLaunch, EveryOptimizer,
    UnpooledTables, TablesInHostMemoryGiveWhatDeviceMemoryGives, WideRows, RunsOfEveryLength,
    OneRowHitVeryOften, BagsFromNoneToAHundredThousandIds, TheSameTwiceGivesTheSameBits,
    NewInputsReplaceOldOnes, NoLookupsGiveZerosAndChangeNothing,
    StartsWithOrdinaryValuesThatTheSeedDecides, TooLargeIsAValueThatQuotesBothSizes,
    BadInputsAreNamedAndKeepTheOldOnes, GeneratedInputsAreThoseOfTheHost,
    GeneratedIdsHaveTheHistogramThatWasAskedFor, PlansForOtherTablesAreNamed);

}  // namespace neuroshard::testing
