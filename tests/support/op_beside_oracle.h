// An embedding op and the oracle of its tables (kernels/cpu/testing/embedding_oracle.h) side by side, with
// the same weights, ids and gradients, and the ids and numbers to try them with.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "kernels/api/embedding_op.h"
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
          op_->SetWeights(static_cast<int>(t), RandomNumbers(random, table.rows * table.cols))
              .ok());
      const std::vector<float> stored = op_->Weights(static_cast<int>(t));  // rounded to its type
      EXPECT_EQ(static_cast<std::int64_t>(stored.size()), table.rows * table.cols);
      oracles_.push_back({table.rows,
                          table.cols,
                          table.pooling_mode,
                          {stored.begin(), stored.end()},
                          std::vector<double>(table.rows)});
      cols_ += table.cols;
    }
    const Status set = op_->SetInputs(inputs_);
    EXPECT_TRUE(set.ok()) << set;
  }

  EmbeddingOp& op() { return *op_; }
  const OracleTable& oracle(int table) const { return oracles_[table]; }

  // Relative to the sum of what was added up, since sums may cancel.
  void ForwardAgrees(double tolerance = 1e-5) {
    op_->Forward();
    const std::vector<float> output = op_->Output();
    ASSERT_EQ(static_cast<std::int64_t>(output.size()), spec_.batch_size * cols_);
    std::int64_t first = 0;
    for (std::size_t t = 0; t < oracles_.size(); ++t) {
      const std::vector<double> expected = OracleForward(oracles_[t], inputs_[t]);
      const std::vector<double> sizes = OracleForward(Absolute(oracles_[t]), Absolute(inputs_[t]));
      const std::int64_t cols = oracles_[t].cols;
      for (std::int64_t b = 0; b < spec_.batch_size; ++b) {
        for (std::int64_t c = 0; c < cols; ++c) {
          ASSERT_NEAR(output[b * cols_ + first + c], expected[b * cols + c],
                      tolerance * sizes[b * cols + c])
              << "table " << t << " sample " << b << " column " << c;
        }
      }
      first += cols;
    }
  }

  // `weight_tolerance`: of stored weights, relative to 1.
  void BackwardAgrees(Random& random, double tolerance = 1e-5) {
    const std::vector<float> gradient = RandomNumbers(random, spec_.batch_size * cols_);
    ASSERT_TRUE(op_->SetOutputGradient(gradient).ok());
    op_->Backward();
    std::int64_t first = 0;
    for (std::size_t t = 0; t < oracles_.size(); ++t) {
      OracleTable& table = oracles_[t];
      std::vector<double> slice;
      for (std::int64_t b = 0; b < spec_.batch_size; ++b) {
        slice.insert(slice.end(), gradient.begin() + b * cols_ + first,
                     gradient.begin() + b * cols_ + first + table.cols);
      }
      OracleUpdate(table, inputs_[t], slice, spec_);
      const double rounding = spec_.tables[t].weight_dtype == DataType::kFp32   ? 0
                              : spec_.tables[t].weight_dtype == DataType::kFp16 ? 0x1p-11
                                                                                : 0x1p-8;
      const std::vector<float> weights = op_->Weights(static_cast<int>(t));
      ASSERT_EQ(weights.size(), table.weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(weights[i], table.weights[i],
                    (tolerance + rounding) * (1 + std::abs(table.weights[i])))
            << "table " << t << " row " << i / table.cols << " column " << i % table.cols;
        table.weights[i] = static_cast<double>(weights[i]);  // so that rounding does not add up
      }
      const std::vector<float> state = op_->OptimizerState(static_cast<int>(t));
      ASSERT_EQ(state.size(),
                spec_.optimizer == Optimizer::kRowwiseAdagrad ? table.state.size() : 0U);
      for (std::size_t row = 0; row < state.size(); ++row) {
        ASSERT_NEAR(state[row], table.state[row], tolerance * (1e-3 + table.state[row]))
            << "table " << t << " row " << row;
      }
      first += table.cols;
    }
  }

 private:
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
  std::int64_t cols_ = 0;
};

}  // namespace neuroshard::testing
