// A sharding plan: which rectangle of which table lives on which rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// A rectangle of a table, [row_offset, row_offset + rows) x [col_offset, col_offset + cols), on a
// rank.
struct Shard {
  std::int64_t row_offset = 0;
  std::int64_t rows = 0;
  std::int64_t col_offset = 0;
  std::int64_t cols = 0;
  int rank = 0;

  bool operator==(const Shard&) const = default;
};

// Where a plan does not state the load factor of a cache (TorchRec's UVM_CACHING_RATIO and
// KV_CACHING_RATIO).
inline constexpr double kDefaultCacheLoadFactor = 0.2;

// A table, named as in the request, with its sharding type, its kernel and its shards.
struct TablePlan {
  std::string name;
  std::string module;
  ShardingType sharding_type = ShardingType::kTableWise;
  ComputeKernel compute_kernel = ComputeKernel::kFused;
  std::vector<Shard> shards;           // ascending (col_offset, row_offset)
  std::optional<TableKind> kind = {};  // none: the table's own
  double cache_load_factor = 0;        // where HasCache(compute_kernel), in (0, 1]; otherwise 0

  bool operator==(const TablePlan&) const = default;
};

// The placement of all tables of a request.
struct Plan {
  int world_size = 0;
  int local_world_size = 0;  // 0 when hosts differ
  std::vector<TablePlan> tables;

  bool operator==(const Plan&) const = default;
};

}  // namespace neuroshard
