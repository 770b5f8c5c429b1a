#include "client/sweep/widest_intervals.h"

#include <algorithm>
#include <numeric>

namespace neuroshard {

std::vector<std::size_t> WidestIntervals(const std::vector<double>& widths, std::size_t count) {
  std::vector<std::size_t> positions(widths.size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  std::stable_sort(positions.begin(), positions.end(),
                   [&](std::size_t a, std::size_t b) { return widths[a] > widths[b]; });
  positions.resize(std::min(count, positions.size()));
  std::sort(positions.begin(), positions.end());
  return positions;
}

}  // namespace neuroshard
