// An embedding table as the planner knows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/domain/reuse_histogram.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// One embedding table with the statistics of its ids.
struct Table {
  std::string name;
  std::string module;
  std::int64_t num_embeddings = 0;  // rows
  std::int64_t embedding_dim = 0;   // columns
  double pooling_factor = 1.0;      // mean ids per sample
  // The same by feature, in the order of `features`; empty: not known.
  std::vector<double> pooling_factors;
  ReuseHistogram reuse_histogram{};
  DataType weight_dtype = DataType::kFp32;
  TableKind kind = TableKind::kEmbeddingBag;
  PoolingMode pooling_mode = PoolingMode::kSum;  // of kind kEmbeddingBag
  bool weighted = false;
  std::vector<std::string> features;
  std::optional<DataType> output_dtype = {};  // of looked-up vectors; none: weight_dtype
  // By feature, in the order of `features`; empty: 1 and the global batch size each.
  std::vector<double> num_poolings = {};
  std::vector<std::int64_t> feature_batch_sizes = {};
  // Mean ids per sample in each of some batches, the same batches for every table; empty: not known.
  std::vector<double> batch_pooling_factors = {};

  bool operator==(const Table&) const = default;
};

// A cut in columns keeps both parts multiples of this (16-byte vectors of fp32; TorchRec and FBGEMM
// ask for the same).
inline constexpr std::int64_t kColumnAlignment = 4;

// Pooled vectors that a sample has on average: for each feature min(1, its pooling factor), as
// TorchRec 1.9.2 counts in times and memory (batch_outputs of planner/estimator/types.py). Features
// without pooling factors of their own share the table's evenly.
double PooledVectors(const Table& table);

}  // namespace neuroshard
