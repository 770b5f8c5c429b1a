#include "server/pretrain/line_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>

#include "server/pretrain/plot_area.h"

namespace neuroshard {
namespace {

constexpr double kLegendWidth = 200;  // pixels
constexpr double kLegendLine = 20;
// Tableau's ten, which people with colour vision deficiencies tell apart better than most.
constexpr std::array kColours = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd",
                                 "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double ShareOf(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

bool IsDrawn(const PlotLine& line, std::size_t i) {
  return std::isfinite(line.y[i]) && line.x[i] > 0 && std::isfinite(line.x[i]);
}

// 1, 2, 5 x 10^k in the range, which is of logarithms.
void AddLogTicks(const Range& x, PlotArea& area) {
  constexpr double kSlack = 1e-9;
  for (double k = std::floor(x.low / std::log(10.0)); k * std::log(10.0) <= x.high; ++k) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, k);
      if (std::log(value) < x.low - kSlack || std::log(value) > x.high + kSlack) continue;
      area.AddVertical(x.ShareOf(std::log(value)), fmt::format("{:.6g}", value));
    }
  }
}

}  // namespace

std::string LinePlot(const LinePlotTexts& texts, std::span<const PlotLine> lines, double shown_y) {
  Range x;
  Range y;
  y.Add(shown_y);
  for (const PlotLine& line : lines) {
    assert(line.x.size() == line.y.size());
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      if (!IsDrawn(line, i)) continue;
      x.Add(std::log(line.x[i]));
      y.Add(line.y[i]);
    }
  }
  PlotArea area(texts.title, kLegendWidth);
  if (x.low > x.high) return area.Finish(texts.x_label, texts.y_label);
  if (y.high <= y.low) y.high = y.low + 1;
  const double step = TickStep(y.high - y.low);
  const double first = std::floor(y.low / step + 1e-9);
  y = {step * first, step * std::ceil(y.high / step - 1e-9)};
  for (double tick = first; step * tick <= y.high + 1e-9 * step; ++tick) {
    area.AddHorizontal(y.ShareOf(step * tick), fmt::format("{:.4g}", step * tick));
  }
  AddLogTicks(x, area);
  for (std::size_t l = 0; l < lines.size(); ++l) {
    const char* colour = kColours[l % kColours.size()];
    std::string path;
    for (std::size_t i = 0; i < lines[l].x.size(); ++i) {
      if (!IsDrawn(lines[l], i)) continue;
      const double at_x = area.X(x.ShareOf(std::log(lines[l].x[i])));
      const double at_y = area.Y(y.ShareOf(lines[l].y[i]));
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', at_x, at_y);
      area.Add(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", at_x,
                           at_y, colour));
    }
    area.Add(fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\"/>\n", path, colour));
    const double legend_y = area.Y(1) + kLegendLine * static_cast<double>(l);
    area.Add(fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n",
                         area.X(1) + kLegendLine, legend_y, colour, SvgText(lines[l].name)));
  }
  return area.Finish(texts.x_label, texts.y_label);
}

}  // namespace neuroshard
