#include "server/search/core/table_layouts.h"

#include <algorithm>

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
  const auto in_parts = [&](int parts) {
    return shard_table.Shards(table, layout.type, cols, parts, layout.residency);
  };
  if (TakesEveryRank(layout.type)) return in_parts(rules_.num_ranks());
  if (SpreadOf(layout.type) != Spread::kOneHost) return in_parts(layout.holders);
  UnitShards shards;
  for (const int size : host_sizes_) shards = in_parts(size);  // the largest stays
  return shards;
}

int TableLayouts::MaxBlocks(int table) const {
  const TableRules& rules = rules_.of(table);
  const std::int64_t dim = At(request_.tables, table).embedding_dim;
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
  const std::int64_t dim = At(request_.tables, table).embedding_dim;
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

std::optional<ShardingType> TableLayouts::TypeOf(int table, int blocks, ShardingType whole,
                                                 std::initializer_list<ShardingType> cut) const {
  const TableRules& rules = rules_.of(table);
  const std::int64_t fewest = rules.fewest_blocks(At(request_.tables, table).embedding_dim);
  if (rules.column_block == 0 && blocks < fewest) return std::nullopt;
  if (blocks == 1 && rules.types.contains(whole)) return whole;
  if (rules.column_block > 0 && blocks != fewest) return std::nullopt;
  const auto type =
      std::ranges::find_if(cut, [&](ShardingType of) { return rules.types.contains(of); });
  return type == cut.end() ? std::nullopt : std::optional(*type);
}

std::vector<TableLayout> TableLayouts::Of(int table) const {
  const TableRules& rules = rules_.of(table);
  const std::int64_t dim = At(request_.tables, table).embedding_dim;
  const int ranks = rules_.num_ranks();
  const int hosts = static_cast<int>(rules_.hosts().size());
  std::vector<TableLayout> layouts;
  const auto add_cuts = [&](const auto& type_of, int most) {
    if (const auto type = type_of(1)) layouts.push_back({*type, 1, 1});
    const int fewest = static_cast<int>(rules.fewest_blocks(dim));
    if (rules.column_block > 0) {
      const auto type = type_of(fewest);
      if (fewest > 1 && type) layouts.push_back({*type, fewest, 1});
      return;
    }
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
