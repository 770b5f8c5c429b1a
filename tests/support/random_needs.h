// What newer requests ask for, at random: rows of few bits, serving, tables that grow, stashing,
// second goals. Drawn after everything else, so that what older seeds draw stays what it was.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/domain/memory_use.h"
#include "common/domain/plan_request.h"
#include "tests/support/random_constraints.h"

namespace neuroshard::testing {

// Host memory of each host for about `copies` times its share of all weights.
inline void AddHostMemory(Random& random, double copies, PlanRequest& request) {
  if (!request.topology.host_memory_bytes.empty()) return;
  double weights = 0;
  for (const Table& table : request.tables) {
    weights += static_cast<double>(table.num_embeddings * table.embedding_dim) *
               ElementBytes(table.weight_dtype);
  }
  const std::size_t hosts = request.topology.hosts().size();
  const double share = copies * (0.5 + random.UniformReal()) / static_cast<double>(hosts);
  request.topology.host_memory_bytes.assign(
      hosts, std::max<std::int64_t>(1, static_cast<std::int64_t>(share * weights)));
}

// Cost, and what comes after it in a random order.
inline std::vector<PlanGoal> RandomGoals(Random& random, const PlanRequest& request) {
  using enum PlanMeasure;
  std::vector<PlanMeasure> others = {kMaxMemory, kCutTables, kExchanges};
  if (request.migration) others.push_back(kMovedBytes);
  if (request.stashes()) others.push_back(kMaxStash);
  std::vector<PlanGoal> goals = {{kCost, random.Below(4) == 0 ? 0 : 0.2 * random.UniformReal()}};
  const std::size_t count = 1 + random.Below(others.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t drawn = random.Below(others.size());
    goals.push_back({others[drawn], random.Below(2) == 0 ? 0 : random.UniformReal()});
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(drawn));
  }
  return goals;
}

// Each need is there one time in `rarity`, goals one time in `goal_rarity`: these take ten searches.
inline void AddRandomNeeds(Random& random, PlanRequest& request, std::uint64_t rarity = 3,
                           std::uint64_t goal_rarity = 20) {
  const auto now = [&] { return random.Below(rarity) == 0; };
  const int tables = static_cast<int>(request.tables.size());
  if (now()) {
    for (const int t : RandomSubset(random, tables, 1)) {
      constexpr DataType kFewBits[] = {DataType::kFp8, DataType::kInt8, DataType::kInt4,
                                       DataType::kInt2};
      request.tables[static_cast<std::size_t>(t)].weight_dtype = kFewBits[random.Below(4)];
    }
  }
  if (now()) {
    if (now()) request.tables.front().optimizer = Optimizer::kAdam;
    request.optimizer = Optimizer::kNone;
  }
  if (now()) {
    AddHostMemory(random, 2, request);
    TableRule& grow = request.constraints.tables.emplace_back();
    grow.tables = RandomSubset(random, tables, 1);
    grow.compute_kernels = {ComputeKernel::kDynamicHybrid, ComputeKernel::kDynamicCaching};
    if (random.Below(2) == 0) grow.compute_kernels.erase(grow.compute_kernels.begin());
  }
  if (now()) {
    for (const int t : RandomSubset(random, tables, 1)) {
      request.tables[static_cast<std::size_t>(t)].stash_weights = true;
    }
    if (random.Below(2) == 0) AddHostMemory(random, 2, request);
  }
  if (now()) {
    std::int64_t least = request.topology.devices.front().memory_bytes;
    for (const Device& device : request.topology.devices) {
      least =
          std::min(least, device.memory_bytes - ReserveBytes(request.memory, device.memory_bytes));
    }
    request.memory.dense_bytes = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(0.6 * random.UniformReal() * static_cast<double>(least)));
  }
  if (random.Below(goal_rarity) == 0) request.search.goals = RandomGoals(random, request);
}

}  // namespace neuroshard::testing
