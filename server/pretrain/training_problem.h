// A regression problem as the trainer sees it: rows of features, samples that are sums over rows,
// targets in ms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace neuroshard {

// Compute: a row is a distinct shard, a sample the shards that one device looks up together.
// Communication: a row is the dim sums (and start offsets) of all ranks, a sample is exactly one
// row.
struct TrainingProblem {
  std::string name;  // "compute", "forward_comm x4"; for messages
  std::vector<std::string> columns;
  std::vector<float>
      rows;  // [num_rows, columns], after the columns' transforms, before standardisation
  std::vector<std::int64_t> sample_begin;  // num_samples + 1 positions in sample_rows
  std::vector<std::int64_t> sample_rows;
  int outputs = 1;
  std::vector<float> targets;  // [num_samples, outputs], ms
  // The sum of a sample's outputs is a cost of its own, to be as right as each of them.
  bool total_counts = false;
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
};

// Which samples are learned from, which choose the epoch, and which are only reported on.
struct SampleSplit {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> validation;
  std::vector<std::int64_t> test;
};

// 80/10/10 (NeuroShard section 3) after a shuffle by seed; every part has at least one sample for
// num_samples >= 3.
SampleSplit SplitSamples(std::int64_t num_samples, std::uint64_t seed);

}  // namespace neuroshard
