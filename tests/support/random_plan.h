// Plans that are laid out legally, wherever that takes their tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "common/domain/plan_request.h"
#include "server/evaluate/testing/lay_out_table.h"

namespace neuroshard::testing {

// Blocks between cuts that fall at random on multiples of kColumnAlignment.
inline std::vector<Block> RandomColumnBlocks(Random& random, std::int64_t dim) {
  std::vector<Block> blocks = {{0, dim}};
  for (std::int64_t cut = kColumnAlignment; cut < dim; cut += kColumnAlignment) {
    if (random.Below(2) == 0) continue;
    blocks.back().size = cut - blocks.back().offset;
    blocks.push_back({cut, dim - cut});
  }
  return blocks;
}

// One table in a random sharding type, cut and placed at random; no memory, constraint or budget is
// looked at.
inline TablePlan RandomTablePlan(Random& random, const Table& table,
                                 const std::vector<HostRanks>& hosts) {
  const int num_ranks = hosts.back().first + hosts.back().count;
  ShardingType type = kWords<ShardingType>[random.Below(kWords<ShardingType>.size())].value;
  if (type == ShardingType::kRowWiseSubset && num_ranks < 2) type = ShardingType::kTableWise;
  const std::vector<Block> columns = CutsColumns(type)
                                         ? RandomColumnBlocks(random, table.embedding_dim)
                                         : std::vector<Block>{{0, table.embedding_dim}};
  std::vector<int> places;
  if (type == ShardingType::kRowWiseSubset) {
    for (int rank = 0; rank < num_ranks; ++rank) places.push_back(rank);
    random.Shuffle(places);
    places.resize(static_cast<std::size_t>(random.Between(2, num_ranks)));
    std::sort(places.begin(), places.end());
  } else {
    const HostRanks& host = hosts[random.Below(hosts.size())];
    for (std::size_t b = 0; b < columns.size(); ++b) {
      if (type == ShardingType::kTableRowWise || type == ShardingType::kGridShard) {
        int place = static_cast<int>(random.Below(hosts.size()));
        while (!places.empty() && hosts[static_cast<std::size_t>(place)].count !=
                                      hosts[static_cast<std::size_t>(places.front())].count) {
          place = static_cast<int>(random.Below(hosts.size()));
        }
        places.push_back(place);
      } else if (type == ShardingType::kTableColumnWise) {
        places.push_back(static_cast<int>(random.Between(host.first, host.first + host.count - 1)));
      } else {
        places.push_back(static_cast<int>(random.Between(0, num_ranks - 1)));
      }
    }
  }
  return LayOutTable(table, type, columns, places, hosts);
}

inline Plan RandomPlan(Random& random, const PlanRequest& request) {
  Plan plan;
  plan.world_size = request.topology.num_ranks();
  plan.local_world_size = request.topology.ranks_per_host();
  const std::vector<HostRanks> hosts = request.topology.hosts();
  for (const Table& table : request.tables) {
    plan.tables.push_back(RandomTablePlan(random, table, hosts));
  }
  return plan;
}

}  // namespace neuroshard::testing
