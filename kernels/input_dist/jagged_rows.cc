#include "kernels/input_dist/jagged_rows.h"

#include <numeric>

namespace neuroshard {

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
