#include "kernels/api/input_dist_kernels.h"

#include <numeric>

namespace neuroshard {

void CountInBlocks(std::int64_t block_rows, std::span<const std::int64_t> lengths,
                   std::span<const std::int64_t> ids, std::span<std::int64_t> out) {
  std::ranges::fill(out, 0);
  const std::int64_t* id = ids.data();
  for (std::size_t bag = 0; bag < lengths.size(); ++bag) {
    for (const std::int64_t* const end = id + lengths[bag]; id != end; ++id) {
      const auto block = static_cast<std::size_t>(*id / block_rows);
      ++out[block * lengths.size() + bag];
    }
  }
}

void MoveToBlocks(std::int64_t block_rows, std::span<const std::int64_t> ids,
                  std::span<const float> weights, const BlockedIds& out) {
  std::vector<std::int64_t> id_at(out.id_begins.begin(), out.id_begins.end());
  std::vector<std::int64_t> weight_at(out.weight_begins.begin(), out.weight_begins.end());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t block = ids[i] / block_rows;
    const auto b = static_cast<std::size_t>(block);
    out.ids[static_cast<std::size_t>(id_at[b]++)] = ids[i] - block * block_rows;
    if (weights.empty()) continue;
    out.weights[static_cast<std::size_t>(weight_at[b]++)] = weights[i];
  }
}

std::vector<std::int64_t> RowBegins(std::span<const std::int64_t> lengths, std::int64_t num_bags) {
  std::vector<std::int64_t> begins = {0};
  for (auto row = lengths.begin(); row != lengths.end(); row += num_bags) {
    begins.push_back(std::accumulate(row, row + num_bags, begins.back()));
  }
  return begins;
}

void PermuteLengths(std::span<const std::int64_t> lengths, std::int64_t num_bags,
                    std::span<const std::size_t> order, std::span<std::int64_t> out) {
  std::int64_t* to = out.data();
  for (const std::size_t row : order) {
    to = std::copy_n(lengths.data() + static_cast<std::int64_t>(row) * num_bags, num_bags, to);
  }
}

}  // namespace neuroshard
