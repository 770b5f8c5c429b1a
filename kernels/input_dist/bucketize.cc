#include "kernels/input_dist/bucketize.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace neuroshard {

void CountInBlocks(const RowBlocks& blocks, std::span<const std::int64_t> lengths,
                   std::span<const std::int64_t> ids, std::span<std::int64_t> out) {
  std::fill(out.begin(), out.end(), 0);
  const std::int64_t* id = ids.data();
  for (std::size_t bag = 0; bag < lengths.size(); ++bag) {
    for (const std::int64_t* const end = id + lengths[bag]; id != end; ++id) {
      const auto block = static_cast<std::size_t>(*id / blocks.block_rows);
      ++out[block * lengths.size() + bag];
    }
  }
}

void MoveToBlocks(const RowBlocks& blocks, std::span<const std::int64_t> ids,
                  std::span<const float> weights, const BlockedIds& out) {
  std::vector<std::int64_t> id_at(out.id_begins.begin(), out.id_begins.end());
  std::vector<std::int64_t> weight_at(out.weight_begins.begin(), out.weight_begins.end());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t block = ids[i] / blocks.block_rows;
    const auto b = static_cast<std::size_t>(block);
    out.ids[static_cast<std::size_t>(id_at[b]++)] = ids[i] - block * blocks.block_rows;
    if (weights.empty()) continue;
    out.weights[static_cast<std::size_t>(weight_at[b]++)] = weights[i];
  }
}

}  // namespace neuroshard
