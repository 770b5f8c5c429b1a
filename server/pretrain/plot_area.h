// The square that every plot of a report draws in: title, grid, labels.
#pragma once

#include <string>
#include <string_view>

namespace neuroshard {

// Positions are shares of the axes: (0, 0) is the lower left corner, (1, 1) the upper right one.
class PlotArea {
 public:
  // `legend_width` (pixels) is left free to the right of the area.
  PlotArea(std::string_view title, double legend_width);

  double X(double share) const;
  double Y(double share) const;

  // A line across the area, with its label at the axis.
  void AddVertical(double share, std::string_view label);
  void AddHorizontal(double share, std::string_view label);

  // Elements of an SVG document.
  void Add(std::string_view elements) { body_ += elements; }

  // The SVG document.
  std::string Finish(std::string_view x_label, std::string_view y_label) const;

 private:
  double legend_width_;
  std::string body_;
};

// `text` inside an element.
std::string SvgText(std::string_view text);

// The smallest of 1, 2, 5 x 10^k that goes at most five times into `extent`, which is above 0: tick
// labels are short.
double TickStep(double extent);

}  // namespace neuroshard
