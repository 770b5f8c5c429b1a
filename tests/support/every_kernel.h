// Every kernel of a GPU's lookups once, beside the oracle: as little as it takes to reach all of
// them, for sanitizers and for faults that are put in on purpose.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "kernels/api/embedding_op.h"
#include "kernels/api/testing/op_contents.h"
#include "kernels/indices/testing/zipf_lookups.h"
#include "tests/support/op_beside_oracle.h"
#include "tests/support/tables_in_host_memory.h"

namespace neuroshard::testing {

// Tables of narrow and wide rows, with and without pooling; bags beyond the longest that a thread
// sums alone, rows that occur in many chunks; `scaled`: gradients that are multiplied by something.
template <typename Create>
void RunLookupsAndUpdates(const Create& create, Optimizer optimizer, bool scaled) {
  constexpr DataType kTypes[] = {DataType::kFp32, DataType::kFp16, DataType::kBf16};
  const OptimizerStateShape state = StateOfRow(optimizer, 2);
  const bool moments = state.momentum1 > 1 || state.momentum2 > 1;
  Random random(3);
  EmbeddingOpSpec spec;
  spec.batch_size = 12;
  spec.optimizer = optimizer;
  if (moments) spec.epsilon = 1e-4F;  // gradients that cancel out are not divided by themselves
  std::vector<LookupBatch> inputs;
  const auto add = [&](std::int64_t cols, PoolingMode mode, std::int64_t rows, std::int64_t longest,
                       bool weighted) {
    const DataType type = scaled || moments ? DataType::kFp32 : kTypes[inputs.size() % 3];
    spec.tables.push_back({70, cols, mode, type});
    inputs.push_back(RandomLookups(random, rows, spec.batch_size, longest, weighted));
  };
  for (const std::int64_t cols : {4, 12, 64, 128, 200}) {
    add(cols, scaled && cols == 64 ? PoolingMode::kMean : PoolingMode::kSum, cols == 12 ? 3 : 70,
        cols == 4 ? 4000 : 40, scaled && cols == 12);
  }
  for (const std::int64_t cols : {8, 300}) add(cols, PoolingMode::kNone, 70, 90, false);
  OpBesideOracle pair(create(spec).value(), spec, inputs, random);
  pair.ForwardAgrees();
  for (int step = 0; step < 2; ++step) pair.BackwardAgrees(random, moments ? 1e-4 : 2e-5);
}

// create: StatusOr<std::unique_ptr<EmbeddingOp>>(const EmbeddingOpSpec&).
template <typename Create>
void RunEveryLookupKernel(const Create& create) {
  RunLookupsAndUpdates(create, Optimizer::kRowwiseAdagrad, true);
  RunLookupsAndUpdates(create, Optimizer::kSgd, false);
  RunLookupsAndUpdates(create, Optimizer::kLamb, true);
  RunLookupsAndUpdates(create, Optimizer::kAdam, false);
  constexpr DataType kTypes[] = {DataType::kFp32, DataType::kFp16};
  CompareWithDeviceMemory(create, Optimizer::kRowwiseAdagrad, kTypes, 2);
  CompareWithDeviceMemory(create, Optimizer::kAdam, kTypes, 2);

  EmbeddingOpSpec spec;
  spec.batch_size = 300;
  spec.tables = {{1000, 4, PoolingMode::kSum}};
  const LookupPlan plan = PlanZipfLookups({1000, 300, 5, false, 1}, 0.5).value();
  const auto forward = [&](auto&& set_inputs) {
    auto op = create(spec).value();
    EXPECT_TRUE(set_inputs(*op).ok());
    op->Forward();
    return ContentsOf(*op)->Output();
  };
  EXPECT_EQ(forward([&](EmbeddingOp& op) { return op.GenerateInputs({plan}); }),
            forward([&](EmbeddingOp& op) { return op.SetInputs({ExpandLookups(plan)}); }));
}

}  // namespace neuroshard::testing
