// Constraints at random, of every kind, for a request that has none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/domain/plan_request.h"

namespace neuroshard::testing {

// `least` or more of 0 .. count - 1, ascending.
inline std::vector<int> RandomSubset(Random& random, int count, int least) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(i);
  random.Shuffle(all);
  all.resize(static_cast<std::size_t>(random.Between(std::min(least, count), count)));
  std::sort(all.begin(), all.end());
  return all;
}

// Out of the first `count` words, which are all of them where it is 0.
template <typename E>
std::vector<E> RandomWords(Random& random, std::size_t count = 0) {
  if (count == 0) count = kWords<E>.size();
  std::vector<E> words;
  for (const int i : RandomSubset(random, static_cast<int>(count), 1)) {
    words.push_back(kWords<E>[static_cast<std::size_t>(i)].value);
  }
  return words;
}

// Each kind of demand is there one time in `rarity`: about 3 contradicts itself often, 8 rarely.
inline void AddRandomConstraints(Random& random, PlanRequest& request, std::uint64_t rarity = 6) {
  const int tables = static_cast<int>(request.tables.size());
  const int ranks = request.topology.num_ranks();
  const int hosts = static_cast<int>(request.topology.hosts().size());
  const auto now = [&] { return random.Below(rarity) == 0; };
  Constraints& constraints = request.constraints;
  if (random.Below(2) == 0) constraints.sharding_types = RandomWords<ShardingType>(random);
  for (std::int64_t i = random.Between(0, 3); i > 0; --i) {
    TableRule rule;
    rule.tables = RandomSubset(random, tables, 1);
    if (now()) rule.sharding_types = RandomWords<ShardingType>(random);
    if (now()) rule.compute_kernels = RandomWords<ComputeKernel>(random, 2);  // in device memory
    if (now()) rule.ranks = RandomSubset(random, ranks, 1);
    if (now()) rule.forbidden_ranks = RandomSubset(random, ranks, 1);
    if (now()) rule.hosts = RandomSubset(random, hosts, 1);
    if (now()) rule.forbidden_hosts = RandomSubset(random, hosts, 1);
    if (now()) rule.max_shards = static_cast<int>(random.Between(1, 4));
    if (now()) rule.min_column_width = random.Between(1, 16);
    rule.distinct_ranks = now();
    if (now()) {
      rule.row_multiple = random.Between(1, 4);
      for (const int table : rule.tables) {
        const Table& of = request.tables[static_cast<std::size_t>(table)];
        rule.row_multiple = std::gcd(rule.row_multiple, of.num_embeddings);
      }
    }
    if (now()) rule.row_proportion = RandomWords<RowProportion>(random).front();
    constraints.tables.push_back(std::move(rule));
  }
  const auto add_group = [&](std::vector<TableGroup>& groups) {
    if (tables < 2 || !now()) return;
    groups.push_back({RandomSubset(random, tables, 2),
                      random.Below(2) == 0 ? GroupLevel::kRank : GroupLevel::kHost});
  };
  for (int i = 0; i < 2; ++i) {
    add_group(constraints.colocate);
    add_group(constraints.separate);
  }
  if (now()) constraints.max_shards_per_rank = static_cast<int>(random.Between(1, 4));
  if (now()) constraints.max_tables_per_rank = static_cast<int>(random.Between(1, 3));
  if (now()) constraints.max_shards_per_table = static_cast<int>(random.Between(1, 4));
  if (now()) constraints.min_column_width = random.Between(1, 12);
  if (now()) constraints.column_rule = ColumnRule::kTorchRec;
}

}  // namespace neuroshard::testing
