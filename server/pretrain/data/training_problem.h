// A regression problem: rows of features, samples that are sets of rows, costs to be predicted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/networks/safetensors.h"

namespace neuroshard {

// Features less their mean, by their deviation, over the training samples.
struct Standardisation {
  std::vector<float> mean;
  std::vector<float> deviation;  // 0: does not vary, so the network is to ignore the column

  // [n, columns] in; columns that do not vary become 0.
  std::vector<float> Apply(std::span<const float> rows) const;

  // The columns that do not vary, by name, comma-separated.
  std::string Constant(std::span<const std::string> names) const;

  // feature_mean and feature_std as a model's file has them: deviations of 1 instead of 0.
  TensorFile File() const;
};

// Over the rows [n, columns] that `used` marks.
Standardisation MeasureColumns(std::span<const float> rows, std::int64_t columns,
                               const std::vector<char>& used);

// Which samples are learned from, which choose the epoch, and which are only reported on.
struct SampleSplit {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> validation;
  std::vector<std::int64_t> test;
};

// Compute: a row is a distinct shard, a sample the shards that one device looks up together.
// Communication: a sample is exactly one row, which is a rank, or all ranks of a collective.
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
  // The sum of a sample's outputs is a target of its own, in one more column of `weights`.
  bool total_counts = false;
  std::vector<float> targets;  // [num_samples, outputs], ms
  std::vector<float> weights;  // of the errors, [num_samples, outputs (+ 1)]; 0: not known
  std::vector<double> scale;   // [outputs], ms for each unit that the network gives
  double floor_ms = 0;         // added to both sides of a relative error (TrainingLoss::kLogRatio)
  // Above 0: the columns are blocks of this many ranks, which are interchangeable: permuting the
  // ranks of all blocks and of the targets alike gives another true sample.
  int interchangeable_ranks = 0;

  std::int64_t num_columns() const { return static_cast<std::int64_t>(columns.size()); }
  std::int64_t num_rows() const {
    return columns.empty() ? 0 : static_cast<std::int64_t>(rows.size()) / num_columns();
  }
  std::int64_t num_samples() const {
    return sample_begin.empty() ? 0 : static_cast<std::int64_t>(sample_begin.size()) - 1;
  }
  std::int64_t weight_columns() const { return outputs + (total_counts ? 1 : 0); }

  // Standardises the rows by `given`, or else by what the rows of `train` show.
  void Standardise(std::span<const std::int64_t> train, const Standardisation* given = nullptr);
};

// 80/10/10 (NeuroShard section 3) after a shuffle by seed; every part has at least one sample for
// num_samples >= 3.
SampleSplit SplitSamples(std::int64_t num_samples, std::uint64_t seed);

}  // namespace neuroshard
