// A predicted-versus-measured plot, as a file that any browser opens.
#pragma once

#include <span>
#include <string>

namespace neuroshard {

// An SVG document: one point a pair of costs (ms), both axes linear from 0 to the largest cost, and
// the diagonal on which a perfect prediction lies. At most 2000 evenly chosen points are drawn.
std::string ScatterPlot(const std::string& title, std::span<const double> measured_ms,
                        std::span<const double> predicted_ms);

}  // namespace neuroshard
