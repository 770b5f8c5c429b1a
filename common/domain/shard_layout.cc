#include "common/domain/shard_layout.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

#include "common/domain/table_names.h"

namespace neuroshard {

std::vector<Block> CeilBlocks(std::int64_t total, int parts) {
  const std::int64_t size = (total + parts - 1) / parts;
  std::vector<Block> blocks;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t offset = std::min(total, i * size);
    blocks.push_back({offset, std::min(size, total - offset)});
  }
  return blocks;
}

std::vector<Block> EvenBlocks(std::int64_t total, int parts) {
  std::vector<Block> blocks;
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t size = total / parts + (i < total % parts ? 1 : 0);
    blocks.push_back({offset, size});
    offset += size;
  }
  return blocks;
}

std::vector<Block> ProportionalBlocks(std::int64_t total, std::span<const std::int64_t> weights) {
  using Wide = unsigned __int128;  // a total times a weight
  Wide sum = 0;
  for (const std::int64_t weight : weights) sum += static_cast<Wide>(weight);
  if (sum == 0) return EvenBlocks(total, static_cast<int>(weights.size()));
  std::vector<Block> blocks(weights.size());
  std::vector<std::pair<Wide, std::size_t>> remainders;
  std::int64_t left = total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Wide quota = static_cast<Wide>(total) * static_cast<Wide>(weights[i]);
    blocks[i].size = static_cast<std::int64_t>(quota / sum);
    left -= blocks[i].size;
    remainders.emplace_back(quota % sum, i);
  }
  // Remainders add up to `left` sums, so that at least as many of them are not 0.
  const auto last = remainders.begin() + left;
  std::nth_element(remainders.begin(), last, remainders.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  for (auto it = remainders.begin(); it != last; ++it) ++blocks[it->second].size;
  std::int64_t offset = 0;
  for (Block& block : blocks) {
    block.offset = offset;
    offset += block.size;
  }
  return blocks;
}

std::vector<Block> RowWiseBlocks(std::int64_t rows, int ranks, const RowCut& cut) {
  if (cut.plain()) return CeilBlocks(rows, ranks);
  const std::int64_t multiple = std::max<std::int64_t>(1, cut.multiple);
  assert(!cut.proportion || cut.weights->size() == static_cast<std::size_t>(ranks));
  std::vector<Block> blocks = cut.proportion ? ProportionalBlocks(rows / multiple, *cut.weights)
                                             : EvenBlocks(rows / multiple, ranks);
  for (Block& block : blocks) {
    block.offset *= multiple;
    block.size *= multiple;
  }
  return blocks;
}

std::vector<Block> WidthBlocks(std::int64_t total, std::int64_t width) {
  std::vector<Block> blocks;
  for (std::int64_t offset = 0; offset < total; offset += width) {
    blocks.push_back({offset, std::min(width, total - offset)});
  }
  return blocks;
}

std::int64_t TorchRecColumnWidth(std::int64_t dim, std::int64_t min_partition) {
  for (std::int64_t width = std::max<std::int64_t>(1, min_partition); width < dim; ++width) {
    if (dim % width == 0 && width % 4 == 0) return width;
  }
  return dim;
}

ShardLayout LayoutOf(ShardingType type, ComputeKernel kernel, std::span<const Shard> shards) {
  if (!CutsRows(type) || shards.empty()) return {type, kernel, 1};
  const std::int64_t first = shards.front().col_offset;
  return {type, kernel, static_cast<int>(std::ranges::count_if(shards, [&](const Shard& s) {
            return s.col_offset == first;
          }))};
}

bool AddsPartialSums(const Plan& plan, const std::vector<Table>& tables) {
  const std::vector<int> table_of = TablesOf(plan, tables);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (!CutsRows(plan.tables[t].sharding_type) || table_of[t] < 0) continue;
    if (tables[static_cast<std::size_t>(table_of[t])].kind == TableKind::kEmbeddingBag) return true;
  }
  return false;
}

}  // namespace neuroshard
