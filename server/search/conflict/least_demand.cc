#include "server/search/conflict/least_demand.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "server/evaluate/lay_out.h"

namespace neuroshard {
namespace {

// Where sums stop, so that sums of them still fit.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 61;

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class DemandOfTypes {
 public:
  DemandOfTypes(const PlanRequest& request, const CompiledRules& rules,
                const std::vector<std::int64_t>& available, int table)
      : request_(request),
        rules_(rules),
        of_(rules.of(table)),
        table_(request.tables[static_cast<std::size_t>(table)]),
        available_(available) {
    for (const int rank : of_.ranks->ranks()) {
      roomiest_ = std::max(roomiest_, available[static_cast<std::size_t>(rank)]);
    }
  }

  LeastDemand Run() {
    LeastDemand least;
    bool each_rank = true;
    for (const auto& word : kWords<ShardingType>) {
      if (!of_.types.contains(word.value)) continue;
      const LeastDemand demand = Of(word.value);
      if (demand.types.empty()) continue;
      each_rank = each_rank && TakesEveryRank(word.value);
      if (least.types.empty()) {
        least = demand;
        continue;
      }
      least.types.Add(word.value);
      least.ranks = std::min(least.ranks, demand.ranks);
      least.shards = std::min(least.shards, demand.shards);
      least.bytes = std::min(least.bytes, demand.bytes);
      least.piece = std::min(least.piece, demand.piece);
      for (std::size_t r = 0; each_rank && r < demand.on_each_rank.size(); ++r) {
        least.on_each_rank[r] = std::min(least.on_each_rank[r], demand.on_each_rank[r]);
      }
    }
    if (!each_rank) least.on_each_rank.clear();
    return least;
  }

 private:
  std::int64_t Bytes(ShardingType type, int row_shards, std::int64_t rows,
                     std::int64_t cols) const {
    return ShardMemory(request_, table_, {type, KernelOf(type), row_shards}, rows, cols)
        .total_bytes();
  }

  // Blocks of columns there must be, and may be.
  int FewestBlocks() const {
    return of_.column_block == 0
               ? 1
               : static_cast<int>(CeilDiv(table_.embedding_dim, of_.column_block));
  }
  std::int64_t MostBlocks() const {
    if (of_.column_block > 0) return FewestBlocks();
    // All but the last are multiples of kColumnAlignment, and none is narrower than the rules say.
    const std::int64_t width = CeilDiv(of_.min_column_width, kColumnAlignment) * kColumnAlignment;
    const std::int64_t most = 1 + (table_.embedding_dim - of_.min_column_width) / width;
    return std::min<std::int64_t>(most, of_.max_shards);
  }

  // No types where the largest shard cannot be small enough.
  LeastDemand Of(ShardingType type) {
    LeastDemand demand;
    const std::int64_t rows = table_.num_embeddings;
    const std::int64_t cols = table_.embedding_dim;
    // What rows take wherever they are cut: weights and optimizer state.
    const MemoryUse whole = ShardMemory(request_, table_, {type, KernelOf(type), 1}, rows, cols);
    const std::int64_t of_rows = whole.weights_bytes + whole.optimizer_bytes;
    const int blocks = CutsColumns(type) ? FewestBlocks() : 1;
    switch (type) {
      case ShardingType::kTableWise:
      case ShardingType::kColumnWise:
      case ShardingType::kTableColumnWise: {
        const std::int64_t most = CutsColumns(type) ? MostBlocks() : 1;
        demand.ranks = of_.distinct_ranks ? blocks : 1;
        demand.shards = blocks;
        demand.bytes = Bytes(type, 1, rows, cols);
        if (blocks > 1) demand.bytes = blocks * Bytes(type, 1, rows, of_.column_block);
        demand.piece = Bytes(type, 1, rows, CeilDiv(cols, most));
        break;
      }
      case ShardingType::kTableRowWise:
      case ShardingType::kGridShard: {
        const int fewest = of_.ranks->fewest_of_a_whole_host();
        const int most = of_.ranks->most_of_a_host();
        const std::int64_t most_blocks = CutsColumns(type) ? MostBlocks() : 1;
        demand.ranks = of_.distinct_ranks ? blocks * fewest : fewest;
        demand.shards = blocks * fewest;
        demand.bytes = of_rows;
        demand.piece = Bytes(type, most, CeilDiv(rows, most), CeilDiv(cols, most_blocks));
        break;
      }
      case ShardingType::kRowWiseSubset: {
        const int most = std::min(static_cast<int>(of_.ranks->ranks().size()), of_.max_shards);
        demand.ranks = 2;
        demand.shards = 2;
        demand.bytes = of_rows;
        demand.piece = Bytes(type, most, CeilDiv(rows, most), cols);
        break;
      }
      case ShardingType::kRowWise:
      case ShardingType::kDataParallel:
        return OnEachRank(type);
    }
    if (demand.piece <= roomiest_) demand.types.Add(type);
    return demand;
  }

  LeastDemand OnEachRank(ShardingType type) {
    LeastDemand demand;
    const Block columns = {0, table_.embedding_dim};
    demand.ranks = demand.shards = rules_.num_ranks();
    const ShardLayout layout = {type, KernelOf(type), CutsRows(type) ? rules_.num_ranks() : 1};
    for (const Shard& shard : LayOut(table_, type, {&columns, 1}, {}, rules_.hosts())) {
      const std::int64_t bytes =
          ShardMemory(request_, table_, layout, shard.rows, shard.cols).total_bytes();
      if (bytes > 0 && bytes > available_[demand.on_each_rank.size()]) return {};
      demand.on_each_rank.push_back(bytes);
      demand.piece = std::max(demand.piece, bytes);
      demand.bytes = std::min(kMostBytes, demand.bytes + bytes);
    }
    demand.types.Add(type);
    return demand;
  }

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const TableRules& of_;
  const Table& table_;
  const std::vector<std::int64_t>& available_;
  std::int64_t roomiest_ = 0;
};

}  // namespace

LeastDemand LeastDemandOf(const PlanRequest& request, const CompiledRules& rules,
                          const std::vector<std::int64_t>& available, int table) {
  return DemandOfTypes(request, rules, available, table).Run();
}

}  // namespace neuroshard
