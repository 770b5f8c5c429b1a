// Small plan requests at random, for properties that hold for every request. Constraints
// are added by random_constraints.h, migrations by random_migration.h; plans come from
// random_plan.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/domain/memory_use.h"
#include "common/domain/plan_request.h"

namespace neuroshard::testing {

struct RandomRequestShape {
  int max_tables = 10;
  int max_ranks = 5;
  std::vector<std::int64_t> dims = {1, 3, 4, 6, 8, 10, 12, 16, 24, 32, 64, 128};
  // Capacity of all ranks together, as a multiple of what the uncut tables need.
  double min_slack = 0.8;
  double max_slack = 3.0;
  // Ranks of a host; with more than one value, hosts differ.
  std::vector<int> ranks_per_host = {2};
  bool torchrec_memory = false;  // that memory rule too
};

// Ranks differ in capacity half of the time; memory rule, optimizer and reserve vary.
inline PlanRequest RandomPlanRequest(Random& random, const RandomRequestShape& shape = {}) {
  PlanRequest request;
  request.global_batch_size = random.Between(1, 512);
  // Not none, the last: what is drawn stays as it was before that was there.
  request.optimizer = kWords<Optimizer>[random.Below(kWords<Optimizer>.size() - 1)].value;
  request.memory.rule = random.Below(2) == 0 ? MemoryRule::kWeightsOnly : MemoryRule::kFull;
  if (shape.torchrec_memory && random.Below(3) == 0) request.memory.rule = MemoryRule::kTorchRec;
  const int num_tables = static_cast<int>(random.Between(1, shape.max_tables));
  for (int t = 0; t < num_tables; ++t) {
    Table table;
    table.name = "t" + std::to_string(t);
    table.module = random.Below(2) == 0 ? "" : "sparse.ebc";
    table.num_embeddings = std::int64_t{1} << random.Between(0, 16);
    table.num_embeddings += random.Between(0, table.num_embeddings);
    table.embedding_dim = shape.dims[random.Below(shape.dims.size())];
    table.pooling_factor = random.UniformReal() * 40;
    table.reuse_histogram[0] = random.UniformReal();
    table.reuse_histogram[3] = 1 - table.reuse_histogram[0];
    table.weight_dtype = random.Below(3) == 0 ? DataType::kFp16 : DataType::kFp32;
    table.hot_row_blocks = t % 4 == 3;
    // Sometimes the same table again, so that costs tie, and in another type, so that memory does
    // not.
    if (t > 0 && random.Below(4) == 0) {
      const std::string name = table.name;
      table = request.tables[random.Below(request.tables.size())];
      table.name = name;
      if (random.Below(2) == 0) table.weight_dtype = DataType::kBf16;
    }
    request.tables.push_back(table);
  }
  const int num_ranks = static_cast<int>(random.Between(1, shape.max_ranks));
  request.topology.devices.resize(static_cast<std::size_t>(num_ranks));  // memory may depend on it
  double needed_bytes = 0;
  for (const Table& table : request.tables) {
    needed_bytes += static_cast<double>(
        ShardMemory(request, table, table.num_embeddings, table.embedding_dim).total_bytes());
  }
  request.topology.devices.clear();
  const bool uneven = random.Below(2) == 0;
  const double slack = shape.min_slack + (shape.max_slack - shape.min_slack) * random.UniformReal();
  int host = -1;
  int left_of_host = 0;
  for (int r = 0; r < num_ranks; ++r) {
    if (left_of_host == 0) {
      ++host;
      left_of_host = shape.ranks_per_host.size() == 1
                         ? shape.ranks_per_host.front()
                         : shape.ranks_per_host[random.Below(shape.ranks_per_host.size())];
    }
    --left_of_host;
    const double share = uneven ? 0.4 + 1.2 * random.UniformReal() : 1.0;
    const double bytes = std::max(1.0, share * slack * needed_bytes / num_ranks);
    request.topology.devices.push_back(
        {.host = host, .memory_bytes = static_cast<std::int64_t>(bytes)});
  }
  if (random.Below(3) == 0) request.memory.reserve_fraction = 0.05;
  if (random.Below(3) == 0) request.memory.reserve_bytes = 100;
  request.search.seed = random.Next();
  return request;
}

}  // namespace neuroshard::testing
