// Some samples of a problem, laid out for one pass through a network.
#pragma once

#include <cstdint>
#include <vector>

namespace neuroshard {

// Rows that several samples share are there once: what they go through is computed once.
struct FitBatch {
  std::int64_t num_rows = 0;
  std::int64_t num_samples = 0;
  std::vector<float> row_values;     // [num_rows, row columns]
  std::vector<float> sample_values;  // [num_samples, sample columns]
  std::vector<std::int64_t> begin;   // num_samples + 1 positions in `row`
  std::vector<std::int64_t> row;     // which of the rows, sample by sample
  std::vector<float> targets;        // [num_samples, outputs]
  std::vector<float> weights;        // [num_samples, outputs (+ 1 for the total)]
};

}  // namespace neuroshard
