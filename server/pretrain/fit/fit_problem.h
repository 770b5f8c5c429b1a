// A regression problem as the fit sees it: features as the network gets them, what each sample
// should give, and how much that counts.
#pragma once

#include <cstdint>
#include <vector>

namespace neuroshard {

enum class FitLoss {
  kSquared,   // weight * (prediction - target)^2
  kLogRatio,  // weight * |ln(prediction + floor) - ln(target + floor)|, for predictions above 0
};

struct FitProblem {
  FitLoss loss = FitLoss::kSquared;
  float floor = 0;  // of kLogRatio, in target units
  std::int64_t row_columns = 0;
  std::vector<float> rows;  // [num_rows, row_columns], standardised
  std::int64_t sample_columns = 0;
  std::vector<float> sample_values;        // [num_samples, sample_columns], standardised
  std::vector<std::int64_t> sample_begin;  // num_samples + 1 positions in sample_rows
  std::vector<std::int64_t> sample_rows;
  std::int64_t outputs = 1;
  // The sum of a sample's outputs is a target of its own, in one more column of `weights`.
  bool total_counts = false;
  std::vector<float> scale;    // [outputs], target units per unit of network output
  std::vector<float> targets;  // [num_samples, outputs]
  std::vector<float> weights;  // of the errors, [num_samples, outputs (+ 1)]; 0: not known
  // Above 0: the row columns are blocks of this many ranks, and each time a sample is learned from
  // its ranks and targets are permuted at random. Such a sample is one row, and no two share one.
  std::int64_t permuted_ranks = 0;

  std::int64_t weight_columns() const { return outputs + (total_counts ? 1 : 0); }
};

}  // namespace neuroshard
