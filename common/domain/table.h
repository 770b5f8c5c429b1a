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
  double pooling_factor = 1.0;  // mean ids of a sample of the global batch, all features together
  // Mean ids of a bag by feature, in the order of `features`; empty: not known, and neither
  // num_poolings nor feature_batch_sizes are given. Their sum over all bags of a global batch is
  // pooling_factor x global batch size.
  std::vector<double> pooling_factors;
  ReuseHistogram reuse_histogram{};
  DataType weight_dtype = DataType::kFp32;
  TableKind kind = TableKind::kEmbeddingBag;
  PoolingMode pooling_mode = PoolingMode::kSum;  // of kind kEmbeddingBag
  bool weighted = false;
  std::vector<std::string> features;
  std::optional<DataType> output_dtype = {};  // of looked-up vectors; none: weight_dtype
  // Bags of a sample and samples of a global batch by feature, in the order of `features`; empty: 1
  // and the global batch size each.
  std::vector<double> num_poolings = {};
  std::vector<std::int64_t> feature_batch_sizes = {};
  // Mean ids per sample in each of some batches, the same batches for every table; empty: not
  // known.
  std::vector<double> batch_pooling_factors = {};
  bool hot_row_blocks = false;  // row blocks cost what the hottest one does, instead of even shares
  // Limits of the caches of a shard's rows where they are on SSD (TorchRec's KeyValueParams): the
  // most bytes of that on the device, none for no limit, and bytes of another one in host memory.
  std::optional<std::int64_t> max_l1_cache_bytes = {};
  std::int64_t l2_cache_bytes = 0;
  // Rows of a hash table that memory is taken for, at least num_embeddings (0: as many), and bytes
  // of each beside its weights and optimizer state.
  std::int64_t allocated_rows = 0;
  std::int64_t extra_bytes_per_row = 0;
  std::optional<Optimizer> optimizer = {};  // of its own; none: the request's
  bool stash_weights = false;  // what fused has on devices is in host memory while dense layers run

  bool operator==(const Table&) const = default;
};

// A cut in columns keeps both parts multiples of this (16-byte vectors of fp32; TorchRec and FBGEMM
// ask for the same), which are whole bytes of the narrowest values too.
inline constexpr std::int64_t kColumnAlignment = 4;
static_assert(kColumnAlignment * ElementBits(DataType::kInt2) % 8 == 0);

// Vectors that lookups of a global batch give, or the bags that they are pooled of.
struct VectorCount {
  double of_sample = 1;  // of each sample of the global batch
  double of_batch = 0;   // of all samples, where features have batch sizes of their own

  double Of(double global_batch_size) const { return of_sample * global_batch_size + of_batch; }
  bool operator==(const VectorCount&) const = default;
};

// As TorchRec 1.9.2 counts in times and memory (batch_outputs of planner/estimator/types.py): for
// each bag of a pooled table min(1, its ids), of an unpooled table one an id. Features without
// pooling factors of their own share the table's evenly.
VectorCount VectorsOf(const Table& table);

// Bags, empty ones too; one a sample where nothing is said of them, however many features there
// are.
VectorCount CountBags(const Table& table);

}  // namespace neuroshard
