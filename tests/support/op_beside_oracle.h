// An embedding op and the oracle of its tables (kernels/cpu/testing/embedding_oracle.h) side by
// side, with the same weights, ids and gradients, and the ids and numbers to try them with.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "kernels/api/embedding_op.h"
#include "kernels/api/testing/op_contents.h"
#include "kernels/cpu/testing/embedding_oracle.h"

namespace neuroshard::testing {

inline LookupBatch RandomLookups(Random& random, std::int64_t rows, std::int64_t batch_size,
                                 std::int64_t longest, bool weighted) {
  LookupBatch batch;
  batch.offsets.push_back(0);
  for (std::int64_t sample = 0; sample < batch_size; ++sample) {
    const std::int64_t length = random.Below(4) == 0 ? 0 : random.Between(1, longest);
    for (std::int64_t i = 0; i < length; ++i) {
      batch.ids.push_back(random.Between(0, rows - 1));
      if (weighted) {  // some of them 0
        batch.weights.push_back(
            random.Below(8) == 0 ? 0.0F : static_cast<float>(random.UniformReal() * 2 - 1));
      }
    }
    batch.offsets.push_back(static_cast<std::int64_t>(batch.ids.size()));
  }
  return batch;
}

inline std::vector<float> RandomNumbers(Random& random, std::int64_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.UniformReal() * 2 - 1);
  return values;
}

// An op and, beside it, the oracle of each of its tables with the same weights.
class OpBesideOracle {
 public:
  OpBesideOracle(std::unique_ptr<EmbeddingOp> op, const EmbeddingOpSpec& spec,
                 std::vector<LookupBatch> inputs, Random& random)
      : spec_(spec), inputs_(std::move(inputs)), op_(std::move(op)) {
    for (std::size_t t = 0; t < spec.tables.size(); ++t) {
      const EmbeddingTableSpec& table = spec.tables[t];
      EXPECT_TRUE(
          ContentsOf(*op_)
              ->SetWeights(static_cast<int>(t), RandomNumbers(random, table.rows * table.cols))
              .ok());
      const std::vector<float> stored =
          ContentsOf(*op_)->Weights(static_cast<int>(t));  // rounded to its type
      EXPECT_EQ(static_cast<std::int64_t>(stored.size()), table.rows * table.cols);
      oracles_.push_back(
          {table.rows, table.cols, table.pooling_mode, {stored.begin(), stored.end()}, {}, {}});
      if (table.pooling_mode != PoolingMode::kNone) cols_ += table.cols;
    }
    const Status set = op_->SetInputs(inputs_);
    EXPECT_TRUE(set.ok()) << set;
  }

  EmbeddingOp& op() { return *op_; }
  const OracleTable& oracle(int table) const { return oracles_[table]; }

  // Relative to the sum of what was added up, since sums may cancel.
  void ForwardAgrees(double tolerance = 1e-5) {
    op_->Forward();
    const std::vector<float> output = ContentsOf(*op_)->Output();
    ASSERT_EQ(output.size(), OutputSize());
    for (std::size_t t = 0; t < oracles_.size(); ++t) {
      const std::vector<double> expected = OracleForward(oracles_[t], inputs_[t]);
      const std::vector<double> sizes = OracleForward(Absolute(oracles_[t]), Absolute(inputs_[t]));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(output[PlaceOf(t, i)], expected[i], tolerance * sizes[i])
            << "table " << t << " output row " << i / oracles_[t].cols << " column "
            << i % oracles_[t].cols;
      }
    }
  }

  // `tolerance`: of stored weights, relative to 1.
  void BackwardAgrees(Random& random, double tolerance = 1e-5) {
    const std::vector<float> gradient =
        RandomNumbers(random, static_cast<std::int64_t>(OutputSize()));
    ASSERT_TRUE(ContentsOf(*op_)->SetOutputGradient(gradient).ok());
    op_->Backward();
    for (std::size_t t = 0; t < oracles_.size(); ++t) {
      OracleTable& table = oracles_[t];
      std::vector<double> slice(OutputRows(table, inputs_[t]) * table.cols);
      for (std::size_t i = 0; i < slice.size(); ++i) slice[i] = gradient[PlaceOf(t, i)];
      OracleUpdate(table, inputs_[t], slice, spec_);
      const double rounding = spec_.tables[t].weight_dtype == DataType::kFp32   ? 0
                              : spec_.tables[t].weight_dtype == DataType::kFp16 ? 0x1p-11
                                                                                : 0x1p-8;
      const std::vector<float> weights = ContentsOf(*op_)->Weights(static_cast<int>(t));
      ASSERT_EQ(weights.size(), table.weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(weights[i], table.weights[i],
                    (tolerance + rounding) * (1 + std::abs(table.weights[i])))
            << "table " << t << " row " << i / table.cols << " column " << i % table.cols;
        table.weights[i] = static_cast<double>(weights[i]);  // so that rounding does not add up
      }
      std::vector<double> expected = table.momentum1;
      expected.insert(expected.end(), table.momentum2.begin(), table.momentum2.end());
      // Means of squares are never small; sums of gradients may cancel.
      const double least = spec_.optimizer == Optimizer::kRowwiseAdagrad ? 1e-3 : 0.1;
      const std::vector<float> state = ContentsOf(*op_)->OptimizerState(static_cast<int>(t));
      ASSERT_EQ(state.size(), expected.size());
      for (std::size_t i = 0; i < state.size(); ++i) {
        ASSERT_NEAR(state[i], expected[i], tolerance * (least + std::abs(expected[i])))
            << "table " << t << " state " << i;
      }
    }
  }

 private:
  // Value i of a table's output, [OutputRows, cols], in that of the op.
  std::size_t PlaceOf(std::size_t table, std::size_t i) const {
    const bool pooled = spec_.tables[table].pooling_mode != PoolingMode::kNone;
    std::size_t place = pooled ? 0 : spec_.batch_size * cols_;
    for (std::size_t t = 0; t < table; ++t) {
      if ((spec_.tables[t].pooling_mode != PoolingMode::kNone) != pooled) continue;
      place += pooled ? oracles_[t].cols : inputs_[t].ids.size() * oracles_[t].cols;
    }
    const std::size_t cols = oracles_[table].cols;
    return pooled ? place + i / cols * cols_ + i % cols : place + i;
  }
  std::size_t OutputSize() const {
    std::size_t size = spec_.batch_size * cols_;
    for (std::size_t t = 0; t < oracles_.size(); ++t) {
      if (spec_.tables[t].pooling_mode != PoolingMode::kNone) continue;
      size += inputs_[t].ids.size() * oracles_[t].cols;
    }
    return size;
  }
  static OracleTable Absolute(OracleTable table) {
    for (double& weight : table.weights) weight = std::abs(weight);
    return table;
  }
  static LookupBatch Absolute(LookupBatch batch) {
    for (float& weight : batch.weights) weight = std::abs(weight);
    return batch;
  }

  EmbeddingOpSpec spec_;
  std::vector<LookupBatch> inputs_;
  std::unique_ptr<EmbeddingOp> op_;
  std::vector<OracleTable> oracles_;
  std::int64_t cols_ = 0;  // of the pooled tables
};

}  // namespace neuroshard::testing
