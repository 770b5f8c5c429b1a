// What a search needs from a cost model: compute in sum form, communication per placement,
// everything in batches.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/reuse_histogram.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// One shard as a model sees it.
struct ShardFeatures {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  double pooling_factor = 1.0;
  ReuseHistogram reuse_histogram{};
  DataType weight_dtype = DataType::kFp32;
  PoolingMode pooling_mode = PoolingMode::kSum;
  bool weighted = false;
};

// Who a model is, and what it was measured at. Zero or empty: not stated.
struct CostModelInfo {
  std::string name;
  int version = 0;
  std::string kind;     // "neural"
  std::string device;   // measured on
  std::string backend;  // "cpu", "cuda"
  std::int64_t global_batch_size = 0;
  std::string weight_dtype;
  std::string optimizer;
  std::vector<std::string> features;
  std::vector<int> num_devices;  // rank counts it can price communication for, ascending
  std::map<std::string, std::string> details;  // flattened metrics and provenance
  bool splits_compute = false;                 // tells forward from backward compute
};

struct ComputeCost {
  float total_ms = 0;
  float forward_ms = 0;  // 0 unless info().splits_compute
  float backward_ms = 0;
};

// Immutable once made; all methods may be called from any thread at the same time. Sizes are the
// caller's duty (checked by assertions); matrices are row-major.
//
// compute(rank) = head(sum over the rank's shards of phi(shard)), NeuroShard section 3. An empty
// rank is the caller's business: it costs 0 and is never passed here.
class CostModel {
 public:
  virtual ~CostModel() = default;

  virtual const CostModelInfo& info() const = 0;

  // FAILED_PRECONDITION when communication over this many ranks cannot be priced; names the counts
  // that can.
  virtual Status CheckRanks(int num_ranks) const = 0;

  // Width of phi.
  virtual int representation_width() const = 0;

  // phi: out is [shards.size(), representation_width()].
  virtual void Represent(std::span<const ShardFeatures> shards, std::span<float> out) const = 0;

  // head: sums is [n, representation_width()], out has n entries. Costs are at least 0.
  virtual void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out) const = 0;

  // dim_sums is [n, num_ranks] columns per rank; cost_ms is [n, num_ranks], at least 0.
  virtual void BackwardCommCosts(int num_ranks, std::span<const float> dim_sums,
                                 std::span<float> cost_ms) const = 0;

  // start_offsets_ms is [n, num_ranks]: how much later than the first each rank enters.
  virtual void ForwardCommCosts(int num_ranks, std::span<const float> dim_sums,
                                std::span<const float> start_offsets_ms,
                                std::span<float> cost_ms) const = 0;
};

}  // namespace neuroshard
