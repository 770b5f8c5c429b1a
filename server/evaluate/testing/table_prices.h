// Oracles of bounds under the analytic model: every layout of a table, priced.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "tests/support/fake_cost_model.h"

namespace neuroshard::testing {

// A table of a million rows for each of `dims`, on ranks with room for all.
inline PlanRequest RequestOfDims(int num_ranks, int ranks_per_host,
                                 const std::vector<std::int64_t>& dims) {
  PlanRequest request;
  request.global_batch_size = 1024;
  for (int rank = 0; rank < num_ranks; ++rank) {
    request.topology.devices.push_back({rank / ranks_per_host, std::int64_t{1} << 40});
  }
  for (const std::int64_t dim : dims) {
    Table& table = request.tables.emplace_back();
    table.name = "t" + std::to_string(request.tables.size());
    table.num_embeddings = 1'000'000;
    table.embedding_dim = dim;
    table.pooling_factor = 10;
  }
  return request;
}

// All ways to lay out and place one table that its rules allow, priced rank by rank; of wide tables
// a handful of cuts. Ranks of a plan under the analytic model cost sums of these, and take sums of
// their memory.
class Layouts {
 public:
  Layouts(const PlanRequest& request, const Table& table, const TableRules& rules,
          const RowCut& row_cut, const std::vector<Residency>& residencies = {Residency{}})
      : request_(request),
        table_(table),
        rules_(rules),
        row_cut_(row_cut),
        residencies_(residencies),
        hosts_(request.topology.hosts()) {
    plan_.name = table.name;
    std::vector<std::int64_t> cuts;
    const std::int64_t step = table.embedding_dim > 16 ? 32 : kColumnAlignment;
    Cut(cuts, 0, step);
    for (const auto& edges : cut_sets_) ForBlocks(edges);
    RowTypes();
  }

  const std::vector<std::vector<double>>& prices() const { return prices_; }
  // Bytes of each priced layout on the ranks' devices, without what is kept free.
  const std::vector<std::vector<std::int64_t>>& bytes() const { return bytes_; }

 private:
  void Cut(std::vector<std::int64_t> edges, std::int64_t from, std::int64_t step) {
    edges.push_back(from);
    if (from >= table_.embedding_dim) {
      cut_sets_.push_back(edges);
      return;
    }
    for (std::int64_t to = from + step; to < table_.embedding_dim; to += step) {
      Cut(edges, to, step);
    }
    Cut(edges, table_.embedding_dim, step);
  }

  void Try(ShardingType type) {
    if (!rules_.types.contains(type)) return;
    if (static_cast<int>(plan_.shards.size()) > rules_.max_shards) return;
    std::vector<int> ranks;
    for (const Shard& shard : plan_.shards) {
      if (!rules_.ranks->contains(shard.rank) || shard.cols < rules_.min_column_width) return;
      ranks.push_back(shard.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    const bool repeats = std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end();
    if (repeats && rules_.distinct_ranks) return;
    plan_.sharding_type = type;
    for (const Residency& residency : residencies_) {
      if (type == ShardingType::kDataParallel && residency.off_device()) continue;
      const ShardLayout layout = LayoutIn(residency, type, 1);
      plan_.compute_kernel = layout.kernel;
      plan_.cache_load_factor = layout.cache_load_factor;
      const Plan plan{request_.topology.num_ranks(), request_.topology.ranks_per_host(), {plan_}};
      const auto cost = PricePlan(request_, plan, BoundTo(request_, *MakeAnalyticCostModel()));
      ASSERT_TRUE(cost.ok()) << cost.status();
      std::vector<double>& of_ranks = prices_.emplace_back();
      std::vector<std::int64_t>& bytes = bytes_.emplace_back();
      for (const RankCost& rank : cost->ranks) {
        of_ranks.push_back(rank.total_ms());
        bytes.push_back(rank.memory.total_bytes() - rank.memory.reserve_bytes);
      }
    }
  }

  // Column blocks between the edges, on any ranks, or on any hosts as grids.
  void ForBlocks(const std::vector<std::int64_t>& edges, std::size_t block = 0) {
    if (block == 0) plan_.shards.clear();
    if (block + 1 == edges.size()) {
      if (edges.size() == 2) Try(ShardingType::kTableWise);
      Try(ShardingType::kColumnWise);
      const int host = request_.topology.devices[At(0)].host;
      bool one_host = true;
      for (std::size_t i = 1; i < plan_.shards.size(); ++i) {
        one_host = one_host && request_.topology.devices[At(i)].host == host;
      }
      if (one_host) Try(ShardingType::kTableColumnWise);
      if (block == edges.size() - 1 && block <= 3) Grids(edges);
      return;
    }
    for (int rank = 0; rank < request_.topology.num_ranks(); ++rank) {
      plan_.shards.push_back(
          {0, table_.num_embeddings, edges[block], edges[block + 1] - edges[block], rank});
      ForBlocks(edges, block + 1);
      plan_.shards.pop_back();
    }
  }
  std::size_t At(std::size_t shard) const {
    return static_cast<std::size_t>(plan_.shards[shard].rank);
  }

  // The hosts that the blocks' first ranks are on.
  void Grids(const std::vector<std::int64_t>& edges) {
    const std::vector<Shard> blocks = plan_.shards;
    plan_.shards.clear();
    for (std::size_t b = 0; b + 1 < edges.size(); ++b) {
      const auto host = std::find_if(hosts_.begin(), hosts_.end(),
                                     [&](const HostRanks& h) { return h.first == blocks[b].rank; });
      if (host != hosts_.end())
        AddRows(host->first, host->count, blocks[b].col_offset, blocks[b].cols);
    }
    std::int64_t cols = 0;
    for (const Shard& shard : plan_.shards) cols += shard.row_offset == 0 ? shard.cols : 0;
    if (cols == table_.embedding_dim) Try(ShardingType::kGridShard);
    plan_.shards = blocks;
  }

  void AddRows(int first, int count, std::int64_t col, std::int64_t cols, const RowCut& cut = {}) {
    const auto blocks = RowWiseBlocks(table_.num_embeddings, count, cut);
    for (int i = 0; i < count; ++i) {
      const Block& block = blocks[static_cast<std::size_t>(i)];
      plan_.shards.push_back({block.offset, block.size, col, cols, first + i});
    }
  }

  void RowTypes() {
    const int ranks = request_.topology.num_ranks();
    const std::int64_t dim = table_.embedding_dim;
    plan_.shards.clear();
    AddRows(0, ranks, 0, dim, row_cut_);
    Try(ShardingType::kRowWise);
    for (const HostRanks& host : hosts_) {
      plan_.shards.clear();
      AddRows(host.first, host.count, 0, dim);
      Try(ShardingType::kTableRowWise);
    }
    for (int subset = 0; subset < 1 << ranks; ++subset) {
      const int holders = __builtin_popcount(static_cast<unsigned>(subset));
      if (holders < 2) continue;
      const auto blocks = EvenBlocks(table_.num_embeddings, holders);
      plan_.shards.clear();
      for (int rank = 0; rank < ranks; ++rank) {
        if ((subset >> rank & 1) == 0) continue;
        const Block& block = blocks[plan_.shards.size()];
        plan_.shards.push_back({block.offset, block.size, 0, dim, rank});
      }
      Try(ShardingType::kRowWiseSubset);
    }
    plan_.shards.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      plan_.shards.push_back({0, table_.num_embeddings, 0, dim, rank});
    }
    Try(ShardingType::kDataParallel);
  }

  const PlanRequest& request_;
  const Table& table_;
  const TableRules& rules_;
  const RowCut& row_cut_;
  const std::vector<Residency> residencies_;
  const std::vector<HostRanks> hosts_;
  TablePlan plan_;
  std::vector<std::vector<std::int64_t>> cut_sets_;
  std::vector<std::vector<double>> prices_;
  std::vector<std::vector<std::int64_t>> bytes_;
};

// The cheapest plan of all tables; infinite where there is none.
inline double Cheapest(const std::vector<Layouts>& tables, std::size_t from,
                       std::vector<double> ranks) {
  if (from == tables.size()) return *std::max_element(ranks.begin(), ranks.end());
  double best = std::numeric_limits<double>::infinity();
  for (const auto& price : tables[from].prices()) {
    std::vector<double> sum = ranks;
    for (std::size_t r = 0; r < sum.size(); ++r) sum[r] += price[r];
    best = std::min(best, Cheapest(tables, from + 1, std::move(sum)));
  }
  return best;
}

}  // namespace neuroshard::testing
