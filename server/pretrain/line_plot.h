// A few curves over one quantity, as a file that any browser opens.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace neuroshard {

struct PlotLine {
  std::string name;
  std::vector<double> x;  // above 0
  std::vector<double> y;  // as many
};

struct LinePlotTexts {
  std::string title;
  std::string x_label;
  std::string y_label;
};

// An SVG document: x logarithmic over the values that there are, y linear, from tick to tick around
// them and `shown_y`. Points that are not finite are left out.
std::string LinePlot(const LinePlotTexts& texts, std::span<const PlotLine> lines, double shown_y);

}  // namespace neuroshard
