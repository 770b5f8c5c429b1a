#include "common/domain/shard_layout.h"

#include <algorithm>

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

std::vector<Block> RowWiseBlocks(std::int64_t rows, int ranks, const RowCut& cut) {
  if (cut.multiple == 0) return CeilBlocks(rows, ranks);
  std::vector<Block> blocks = EvenBlocks(rows / cut.multiple, ranks);
  for (Block& block : blocks) {
    block.offset *= cut.multiple;
    block.size *= cut.multiple;
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
  return {type, kernel,
          static_cast<int>(std::count_if(shards.begin(), shards.end(),
                                         [&](const Shard& s) { return s.col_offset == first; }))};
}

}  // namespace neuroshard
