// A regression problem: rows of features, samples that are sets of rows, costs to be predicted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/networks/safetensors.h"

namespace neuroshard {

// Standardization of features, by mean and deviation over the training samples.
struct Standardisation {
  std::vector<float> mean;
  std::vector<float> deviation;  // 0: does not vary, so the network is to ignore the column

  // Standardizes `rows`, [n, columns]; columns that do not vary become 0.
  std::vector<float> Apply(std::span<const float> rows) const;

  // Returns the names of the columns that do not vary, comma-separated.
  std::string Constant(std::span<const std::string> names) const;

  // Returns feature_mean and feature_std for a model's file, with deviations of 1 instead of 0.
  TensorFile File() const;
};

// Samples that are learned from, that choose the epoch, and that are only reported on.
struct SampleSplit {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> validation;
  std::vector<std::int64_t> test;
};

// A regression problem. For compute, a row is a distinct shard and a sample the shards that one
// device looks up together. For communication a sample is exactly one row: a rank, or all ranks of
// a collective.
struct TrainingProblem {
  std::string name;  // "compute", "forward_comm x4"; for messages
  std::vector<std::string> columns;
  std::vector<float> rows;  // [num_rows, columns], raw until Standardise
  Standardisation standardisation;
  std::int64_t sample_columns = 0;
  std::vector<float> sample_values;        // [num_samples, sample_columns]: of a sample as a whole
  std::vector<std::int64_t> sample_begin;  // num_samples + 1 positions in sample_rows
  std::vector<std::int64_t> sample_rows;
  int outputs = 1;
  // The sum of a sample's outputs is another target, with a column of its own in `weights`.
  bool total_counts = false;
  std::vector<float> targets;  // [num_samples, outputs], ms
  std::vector<float> weights;  // of the errors, [num_samples, outputs (+ 1)]; 0: not known
  std::vector<double> scale;   // [outputs], ms for each unit that the network gives
  double floor_ms = 0;         // added to both sides of a relative error (TrainingLoss::kLogRatio)
  // Above 0: the columns are blocks of this many interchangeable ranks. Permuting the ranks of all
  // blocks and of the targets alike gives another valid sample.
  int interchangeable_ranks = 0;

  std::int64_t num_columns() const { return static_cast<std::int64_t>(columns.size()); }
  std::int64_t num_rows() const {
    return columns.empty() ? 0 : static_cast<std::int64_t>(rows.size()) / num_columns();
  }
  std::int64_t num_samples() const {
    return sample_begin.empty() ? 0 : static_cast<std::int64_t>(sample_begin.size()) - 1;
  }
  std::int64_t weight_columns() const { return outputs + (total_counts ? 1 : 0); }

  // Returns mean and deviation of each column over the rows of `train`.
  Standardisation Measure(std::span<const std::int64_t> train) const;
  void Standardise(Standardisation by);
};

// Splits 80/10/10 (NeuroShard section 3) after a shuffle by seed; every part has a sample for
// num_samples >= 3.
SampleSplit SplitSamples(std::int64_t num_samples, std::uint64_t seed);

}  // namespace neuroshard
