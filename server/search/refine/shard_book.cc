#include "server/search/refine/shard_book.h"

#include <span>

#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "server/features/shard_features.h"

namespace neuroshard {
namespace {

// Sharding types with one shard a place.
constexpr std::size_t kRankTypes = 3;
constexpr std::size_t kFirstIds = 1U << 10;

ShardLayout LayoutOf(ShardingType type, int row_shards) {
  return {type, type == ShardingType::kDataParallel ? ComputeKernel::kDense : ComputeKernel::kFused,
          row_shards};
}

}  // namespace

ShardBook::ShardBook(SearchContext& context)
    : context_(context),
      conditions_(ConditionsOf(context.request())),
      width_(static_cast<std::size_t>(context.model().representation_width())),
      ids_(kFirstIds, -1) {
  std::size_t end = 0;
  for (const Table& table : context.request().tables) {
    quick_begin_.push_back(end);
    end += kRankTypes * static_cast<std::size_t>(table.embedding_dim / kColumnAlignment + 1);
  }
  quick_ids_.assign(end, -1);
}

std::size_t ShardBook::HashOf(const Key& key) {
  std::uint64_t hash = 0;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(key.table), static_cast<std::uint64_t>(key.type),
        static_cast<std::uint64_t>(key.row_shards), static_cast<std::uint64_t>(key.rows),
        static_cast<std::uint64_t>(key.cols)}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  }
  return static_cast<std::size_t>(hash);
}

UnitShards ShardBook::Shards(int table, ShardingType type, std::int64_t cols, int ranks) {
  const std::int64_t rows =
      context_.request().tables[static_cast<std::size_t>(table)].num_embeddings;
  UnitShards shards;
  shards.count = ranks;
  if (!CutsRows(type)) {
    shards.full = shards.rest = shards.empty = Intern({table, type, 1, rows, cols});
    shards.full_end = shards.rest_end = ranks;
    return shards;
  }
  if (type == ShardingType::kRowWiseSubset) {
    const std::int64_t small = rows / ranks;
    shards.full_end = static_cast<int>(rows % ranks);
    shards.rest_end = ranks;
    shards.rest = shards.empty = Intern({table, type, ranks, small, cols});
    shards.full = shards.full_end > 0 ? Intern({table, type, ranks, small + 1, cols}) : shards.rest;
    return shards;
  }
  const std::int64_t block = (rows + ranks - 1) / ranks;
  const std::int64_t left = rows % block;
  shards.full_end = static_cast<int>(rows / block);
  shards.rest_end = shards.full_end + (left > 0 ? 1 : 0);
  shards.full = Intern({table, type, ranks, block, cols});
  shards.rest = left > 0 ? Intern({table, type, ranks, left, cols}) : shards.full;
  shards.empty = shards.rest_end < ranks ? Intern({table, type, ranks, 0, cols}) : shards.full;
  return shards;
}

int ShardBook::Intern(const Key& key) {
  if (int* const id = QuickId(key); id != nullptr) {
    if (*id < 0) *id = Add(key);
    return *id;
  }
  if (int& known = Probe(key); known >= 0) return known;
  if (++num_ids_ * 2 > ids_.size()) {
    std::vector<int> old(ids_.size() * 2, -1);
    old.swap(ids_);
    for (const int id : old) {
      if (id >= 0) Probe(entries_[static_cast<std::size_t>(id)].key) = id;
    }
  }
  const int id = Add(key);
  Probe(key) = id;
  return id;
}

int& ShardBook::Probe(const Key& key) {
  const std::size_t mask = ids_.size() - 1;
  std::size_t i = HashOf(key) & mask;
  while (ids_[i] >= 0 && entries_[static_cast<std::size_t>(ids_[i])].key != key) {
    i = (i + 1) & mask;
  }
  return ids_[i];
}

int ShardBook::Add(const Key& key) {
  const Table& table = context_.request().tables[static_cast<std::size_t>(key.table)];
  const std::int64_t bytes =
      ShardMemory(context_.request(), table, LayoutOf(key.type, key.row_shards), key.rows, key.cols)
          .total_bytes();
  entries_.push_back({key, bytes});
  return size() - 1;
}

int* ShardBook::QuickId(const Key& key) {
  if (SpreadOf(key.type) != Spread::kRank || key.cols % kColumnAlignment != 0) return nullptr;
  const std::size_t type = key.type == ShardingType::kTableWise    ? 0
                           : key.type == ShardingType::kColumnWise ? 1
                                                                   : 2;
  const std::size_t granules = static_cast<std::size_t>(key.cols / kColumnAlignment);
  return &quick_ids_[quick_begin_[static_cast<std::size_t>(key.table)] + kRankTypes * granules +
                     type];
}

void ShardBook::PredictNew() {
  const std::size_t known = loads_.size();
  const std::size_t added = entries_.size() - known;
  if (added == 0) return;
  std::vector<ShardFeatures> features;
  features.reserve(added);
  for (std::size_t i = known; i < entries_.size(); ++i) {
    const Key& key = entries_[i].key;
    features.push_back(FeaturesOf(context_.request().tables[static_cast<std::size_t>(key.table)],
                                  LayoutOf(key.type, key.row_shards), key.rows, key.cols));
  }
  phi_.resize(entries_.size() * width_);
  loads_.resize(entries_.size());
  const std::span<float> phi(phi_.data() + known * width_, added * width_);
  context_.model().Represent(conditions_, features, phi, std::span(loads_).subspan(known));
  std::vector<ComputeCost> costs(added);
  context_.model().ComputeCosts(phi, costs);
  context_.statistics().compute_evaluations += static_cast<std::int64_t>(added);
  for (const ComputeCost& cost : costs) single_cost_ms_.push_back(cost.total_ms);
}

}  // namespace neuroshard
