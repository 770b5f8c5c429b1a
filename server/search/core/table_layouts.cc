#include "server/search/core/table_layouts.h"

#include <algorithm>
#include <cstddef>

#include "common/base/positions.h"
#include "common/domain/shard_layout.h"

namespace neuroshard {
namespace {

// Numbers from `first` to `last`: all of them up to 8, then a third more each time, and the last.
template <typename Add>
void ForSomeCounts(int first, int last, const Add& add) {
  for (int count = first; count < last; count += count < 8 ? 1 : count / 3) add(count);
  if (first <= last) add(last);
}

// The least of as many even blocks, of which the last one has as many granules as any, and the
// ragged end.
std::int64_t NarrowestWidth(std::int64_t dim, int blocks) {
  const std::int64_t granules = (dim + kColumnAlignment - 1) / kColumnAlignment;
  const std::int64_t last = (granules + blocks - 1) / blocks;
  return std::min(granules / blocks * kColumnAlignment,
                  last * kColumnAlignment - (granules * kColumnAlignment - dim));
}

}  // namespace

TableLayouts::TableLayouts(const PlanRequest& request, const CompiledRules& rules)
    : request_(request), rules_(rules) {
  for (const HostRanks& host : rules.hosts()) host_sizes_.push_back(host.count);
  SortUnique(host_sizes_);
}

UnitShards TableLayouts::Shards(ShardTable& shard_table, int table, const TableLayout& layout,
                                std::int64_t cols) const {
  switch (SpreadOf(layout.type)) {
    case Spread::kHost: {
      UnitShards shards;
      for (const int size : host_sizes_) {  // the largest stays
        shards = shard_table.Shards(table, layout.type, cols, size, layout.residency);
      }
      return shards;
    }
    case Spread::kRows:
    case Spread::kCopies:
      return shard_table.Shards(table, layout.type, cols, rules_.num_ranks(), layout.residency);
    case Spread::kSubset:
      return shard_table.Shards(table, layout.type, cols, layout.holders, layout.residency);
    case Spread::kRank:
      break;
  }
  return shard_table.Shards(table, layout.type, cols, 1, layout.residency);
}

int TableLayouts::FewestBlocks(int table) const {
  const TableRules& rules = rules_.of(table);
  if (rules.column_block > 0) return 1;  // or as many as the block gives
  return static_cast<int>(
      rules.fewest_blocks(request_.tables[static_cast<std::size_t>(table)].embedding_dim));
}

int TableLayouts::MaxBlocks(int table) const {
  const TableRules& rules = rules_.of(table);
  const std::int64_t dim = request_.tables[static_cast<std::size_t>(table)].embedding_dim;
  const std::int64_t width =
      (rules.min_column_width + kColumnAlignment - 1) / kColumnAlignment * kColumnAlignment;
  const std::int64_t most = std::max(width, kColumnAlignment);
  const std::int64_t blocks = (dim + most - 1) / most;  // a ragged end may be one
  return static_cast<int>(std::min<std::int64_t>(blocks, rules.max_shards));
}

std::vector<std::int64_t> TableLayouts::Widths(int table, int blocks) const {
  std::vector<std::int64_t> widths;
  Widths(table, blocks, widths);
  return widths;
}

void TableLayouts::Widths(int table, int blocks, std::vector<std::int64_t>& widths) const {
  const std::int64_t dim = request_.tables[static_cast<std::size_t>(table)].embedding_dim;
  const std::int64_t block = rules_.of(table).column_block;
  widths.clear();
  if (block > 0) {
    if (blocks == 1) {
      widths.push_back(dim);
      return;
    }
    for (const Block& b : WidthBlocks(dim, block)) widths.push_back(b.size);
    return;
  }
  // The ragged end counts as a granule, of the last block.
  const std::int64_t granules = (dim + kColumnAlignment - 1) / kColumnAlignment;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t begin = granules * i / blocks;
    const std::int64_t end = granules * (i + 1) / blocks;
    widths.push_back(std::min(end * kColumnAlignment, dim) - begin * kColumnAlignment);
  }
}

std::optional<ShardingType> TableLayouts::OnRanks(int table, int blocks) const {
  const TableRules& rules = rules_.of(table);
  if (blocks > rules.max_shards || blocks < FewestBlocks(table)) return std::nullopt;
  if (blocks == 1 && rules.types.contains(ShardingType::kTableWise)) {
    return ShardingType::kTableWise;
  }
  if (rules.column_block > 0) {
    const std::int64_t dim = request_.tables[static_cast<std::size_t>(table)].embedding_dim;
    if (blocks != (dim + rules.column_block - 1) / rules.column_block) return std::nullopt;
  }
  for (const ShardingType type : {ShardingType::kColumnWise, ShardingType::kTableColumnWise}) {
    if (rules.types.contains(type)) return type;
  }
  return std::nullopt;
}

std::optional<ShardingType> TableLayouts::OnHosts(int table, int blocks) const {
  const TableRules& rules = rules_.of(table);
  if (blocks < FewestBlocks(table)) return std::nullopt;
  if (blocks == 1 && rules.types.contains(ShardingType::kTableRowWise)) {
    return ShardingType::kTableRowWise;
  }
  if (!rules.types.contains(ShardingType::kGridShard)) return std::nullopt;
  if (rules.column_block > 0) {
    const std::int64_t dim = request_.tables[static_cast<std::size_t>(table)].embedding_dim;
    if (blocks != (dim + rules.column_block - 1) / rules.column_block) return std::nullopt;
  }
  return ShardingType::kGridShard;
}

std::vector<TableLayout> TableLayouts::Of(int table) const {
  const TableRules& rules = rules_.of(table);
  const std::int64_t dim = request_.tables[static_cast<std::size_t>(table)].embedding_dim;
  const int ranks = rules_.num_ranks();
  const int hosts = static_cast<int>(rules_.hosts().size());
  std::vector<TableLayout> layouts;
  const auto add_cuts = [&](const auto& type_of, int most) {
    if (const auto type = type_of(1)) layouts.push_back({*type, 1, 1});
    if (rules.column_block > 0) {
      const int blocks = static_cast<int>((dim + rules.column_block - 1) / rules.column_block);
      const auto type = type_of(blocks);
      if (blocks > 1 && type) layouts.push_back({*type, blocks, 1});
      return;
    }
    const int fewest = FewestBlocks(table);
    const int last = std::min(MaxBlocks(table), std::max(fewest, most));
    ForSomeCounts(std::max(2, fewest), last, [&](int blocks) {
      const auto type = type_of(blocks);
      if (type && NarrowestWidth(dim, blocks) >= rules.min_column_width) {
        layouts.push_back({*type, blocks, 1});
      }
    });
  };
  add_cuts([&](int blocks) { return OnRanks(table, blocks); }, ranks);
  add_cuts([&](int blocks) { return OnHosts(table, blocks); }, hosts);
  for (const ShardingType type : {ShardingType::kRowWise, ShardingType::kDataParallel}) {
    if (rules.types.contains(type)) layouts.push_back({type, 1, 1});
  }
  if (rules.types.contains(ShardingType::kRowWiseSubset)) {
    const int most = std::min({rules.max_shards, static_cast<int>(rules.ranks->ranks().size())});
    ForSomeCounts(2, most, [&](int holders) {
      layouts.push_back({ShardingType::kRowWiseSubset, 1, holders});
    });
  }
  return layouts;
}

std::vector<TableLayout> TableLayouts::In(int table, int residency,
                                          std::vector<TableLayout> layouts) const {
  std::erase_if(layouts, [&](const TableLayout& layout) {
    return !rules_.Allows(table, residency, layout.type);
  });
  for (TableLayout& layout : layouts) layout.residency = residency;
  return layouts;
}

}  // namespace neuroshard
