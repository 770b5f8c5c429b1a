// The choice of an active sweep among its candidates.
#pragma once

#include <cstddef>
#include <vector>

namespace neuroshard {

// Positions of the `count` largest widths (all, when there are fewer), ascending; of equal widths
// the first.
std::vector<std::size_t> WidestIntervals(const std::vector<double>& widths, std::size_t count);

}  // namespace neuroshard
