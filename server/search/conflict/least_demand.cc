#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "server/evaluate/lay_out.h"
#include "server/search/conflict/proof_parts.h"

namespace neuroshard {
namespace {

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// What ranks have for shards.
struct Room {
  const std::vector<std::int64_t>& available;  // by rank
  std::int64_t least = 0;                      // of all ranks
  std::int64_t most = 0;                       // of the table's
};

// The least of one table over the types that are left to it, each quantity by itself.
class DemandOfTypes {
 public:
  DemandOfTypes(const PlanRequest& request, const CompiledRules& rules, const Room& room, int table)
      : request_(request),
        rules_(rules),
        of_(rules.of(table)),
        table_(request.tables[static_cast<std::size_t>(table)]),
        cut_(rules.row_cut(table)),
        off_device_(rules.PlacesOffDevice(table)),
        room_(room) {}

  LeastDemand Run() {
    for (const auto& word : kWords<ShardingType>) {
      if (!TakesEveryRank(word.value) && of_.types.contains(word.value)) Add(Of(word.value));
    }
    // What each rank takes matters only if nothing else is left.
    const bool alone = least_.types.empty();
    for (const ShardingType type : {ShardingType::kRowWise, ShardingType::kDataParallel}) {
      if (of_.types.contains(type)) Add(alone ? OnEachRank(type) : OnAllRanks(type));
    }
    return std::move(least_);
  }

 private:
  void Add(const LeastDemand& demand) {
    if (demand.types.empty()) return;
    if (least_.types.empty()) {
      least_ = demand;
      return;
    }
    for (const auto& word : kWords<ShardingType>) {
      if (demand.types.contains(word.value)) least_.types.Add(word.value);
    }
    least_.ranks = std::min(least_.ranks, demand.ranks);
    least_.shards = std::min(least_.shards, demand.shards);
    least_.bytes = std::min(least_.bytes, demand.bytes);
    least_.piece = std::min(least_.piece, demand.piece);
    for (std::size_t r = 0; r < least_.on_each_rank.size(); ++r) {
      least_.on_each_rank[r] = std::min(least_.on_each_rank[r], demand.on_each_rank[r]);
    }
  }

  std::int64_t Bytes(ShardingType type, int row_shards, std::int64_t rows,
                     std::int64_t cols) const {
    return Least(type, row_shards, rows, cols,
                 [](const MemoryUse& use) { return use.total_bytes(); });
  }

  // Over the residencies that are left to the table in the type.
  template <typename Count>
  std::int64_t Least(ShardingType type, int row_shards, std::int64_t rows, std::int64_t cols,
                     const Count& count) const {
    const auto of = [&](const Residency& residency) {
      return count(
          ShardMemory(request_, table_, LayoutIn(residency, type, row_shards, cut_), rows, cols));
    };
    const std::int64_t on_device = of({});
    if (off_device_.empty() || type == ShardingType::kDataParallel) return on_device;
    std::int64_t least = of_.device_types.contains(type) ? on_device : kMaxFlow;
    for (const int position : off_device_) {
      least = std::min(least, of(rules_.residency(position)));
    }
    return least;
  }

  // What rows take wherever they are cut: weights and optimizer state.
  std::int64_t BytesOfRows(ShardingType type) const {
    return Least(type, 1, table_.num_embeddings, table_.embedding_dim,
                 [](const MemoryUse& use) { return use.row_bytes(); });
  }
  static std::int64_t ToAll(std::int64_t bytes, int ranks) {
    return bytes > kMaxFlow / ranks ? kMaxFlow : bytes * ranks;
  }

  // Blocks of columns there must be, and may be.
  int FewestBlocks() const { return static_cast<int>(of_.fewest_blocks(table_.embedding_dim)); }
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
    const int blocks = CutsColumns(type) ? FewestBlocks() : 1;
    const std::int64_t most_blocks = CutsColumns(type) ? MostBlocks() : 1;
    switch (SpreadOf(type)) {
      case Spread::kRank:
        demand.ranks = of_.distinct_ranks ? blocks : 1;
        demand.shards = blocks;
        demand.bytes = Bytes(type, 1, rows, cols);
        if (of_.column_block > 0 && blocks > 1) {
          demand.bytes = blocks * Bytes(type, 1, rows, of_.column_block);
        }
        demand.piece = Bytes(type, 1, rows, CeilDiv(cols, most_blocks));
        break;
      case Spread::kOneHost: {
        const int fewest = of_.ranks->fewest_of_a_whole_host();
        const int most = of_.ranks->most_of_a_host();
        demand.ranks = of_.distinct_ranks ? blocks * fewest : fewest;
        demand.shards = blocks * fewest;
        demand.bytes = BytesOfRows(type);
        demand.piece = Bytes(type, most, CeilDiv(rows, most), CeilDiv(cols, most_blocks));
        break;
      }
      case Spread::kSubset: {
        const int most = std::min(static_cast<int>(of_.ranks->ranks().size()), of_.max_shards);
        demand.ranks = 2;
        demand.shards = 2;
        demand.bytes = BytesOfRows(type);
        demand.piece = Bytes(type, most, CeilDiv(rows, most), cols);
        break;
      }
      case Spread::kRows:
      case Spread::kCopies:
        return OnEachRank(type);
    }
    if (demand.piece <= room_.most) demand.types.Add(type);
    return demand;
  }

  std::int64_t MostRows(int ranks) const {
    std::int64_t most = 0;
    for (const Block& block : RowWiseBlocks(table_.num_embeddings, ranks, cut_)) {
      most = std::max(most, block.size);
    }
    return most;
  }

  // OnEachRank without the list, in O(1) where every rank has room for the largest shard.
  LeastDemand OnAllRanks(ShardingType type) {
    const bool replicated = type == ShardingType::kDataParallel;
    const int ranks = rules_.num_ranks();
    const std::int64_t cols = table_.embedding_dim;
    LeastDemand demand;
    demand.ranks = demand.shards = ranks;
    demand.piece = Bytes(type, replicated ? 1 : ranks,
                         replicated ? table_.num_embeddings : MostRows(ranks), cols);
    if (demand.piece > room_.least) {
      demand = OnEachRank(type);
      demand.on_each_rank.clear();
      return demand;
    }
    demand.bytes = replicated ? ToAll(demand.piece, ranks) : BytesOfRows(type);
    demand.types.Add(type);
    return demand;
  }

  LeastDemand OnEachRank(ShardingType type) {
    LeastDemand demand;
    const Block columns = {0, table_.embedding_dim};
    demand.ranks = demand.shards = rules_.num_ranks();
    const int row_shards = CutsRows(type) ? rules_.num_ranks() : 1;
    for (const Shard& shard : LayOut(table_, type, {&columns, 1}, {}, rules_.hosts(), cut_)) {
      const std::int64_t bytes = Bytes(type, row_shards, shard.rows, shard.cols);
      if (bytes > 0 && bytes > room_.available[demand.on_each_rank.size()]) return {};
      demand.on_each_rank.push_back(bytes);
      demand.piece = std::max(demand.piece, bytes);
      demand.bytes = CappedSum(demand.bytes, bytes);
    }
    demand.types.Add(type);
    return demand;
  }

  const PlanRequest& request_;
  const CompiledRules& rules_;
  const TableRules& of_;
  const Table& table_;
  const RowCut& cut_;
  const std::vector<int> off_device_;  // CompiledRules::PlacesOffDevice
  const Room& room_;
  LeastDemand least_;
};

}  // namespace

std::vector<LeastDemand> LeastDemandsOf(const PlanRequest& request, const CompiledRules& rules,
                                        const std::vector<std::int64_t>& available) {
  Room room = {available, *std::ranges::min_element(available), 0};
  std::unordered_map<const RankSet*, std::int64_t> most_of;
  std::vector<LeastDemand> demands;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const int table = static_cast<int>(t);
    const RankSet* ranks = rules.of(table).ranks.get();
    const auto [most, is_new] = most_of.emplace(ranks, 0);
    for (std::size_t i = 0; is_new && i < ranks->ranks().size(); ++i) {
      const std::size_t rank = static_cast<std::size_t>(ranks->ranks()[i]);
      most->second = std::max(most->second, available[rank]);
    }
    room.most = most->second;
    demands.push_back(DemandOfTypes(request, rules, room, table).Run());
  }
  return demands;
}

}  // namespace neuroshard
