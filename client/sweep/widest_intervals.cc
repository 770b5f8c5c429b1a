#include "client/sweep/widest_intervals.h"

#include <algorithm>

#include "common/base/positions.h"

namespace neuroshard {

std::vector<std::size_t> WidestIntervals(const std::vector<double>& widths, std::size_t count) {
  std::vector<std::size_t> positions =
      PositionsDescending(widths.size(), [&](std::size_t i) { return widths[i]; });
  positions.resize(std::min(count, positions.size()));
  std::sort(positions.begin(), positions.end());
  return positions;
}

}  // namespace neuroshard
