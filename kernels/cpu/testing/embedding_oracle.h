// Embedding lookups written down naively in double precision; what the kernels are compared with.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/api/embedding_op.h"

namespace neuroshard {

struct OracleTable {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  PoolingMode pooling_mode = PoolingMode::kSum;
  std::vector<double> weights;    // [rows, cols]
  std::vector<double> momentum1;  // as StateOfRow says; made by the first update
  std::vector<double> momentum2;
  int step = 0;  // updates
};

// Rows of a table's output: samples, or ids where nothing is pooled.
std::int64_t OutputRows(const OracleTable& table, const LookupBatch& batch);

// [OutputRows, cols] of one table.
std::vector<double> OracleForward(const OracleTable& table, const LookupBatch& batch);

// The gradient of the weights, [rows, cols], from that of the output, [OutputRows, cols].
std::vector<double> OracleWeightGradient(const OracleTable& table, const LookupBatch& batch,
                                         const std::vector<double>& output_gradient);

// One step of the optimizer on every row that the batch touches.
void OracleUpdate(OracleTable& table, const LookupBatch& batch,
                  const std::vector<double>& output_gradient, const EmbeddingOpSpec& spec);

}  // namespace neuroshard
