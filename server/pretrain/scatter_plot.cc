#include "server/pretrain/scatter_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "server/pretrain/plot_area.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxPoints = 2000;

}  // namespace

std::string ScatterPlot(const std::string& title, std::span<const double> measured_ms,
                        std::span<const double> predicted_ms) {
  assert(measured_ms.size() == predicted_ms.size());
  double largest = 0;
  for (const auto values : {measured_ms, predicted_ms}) {
    for (const double value : values) largest = std::max(largest, value);
  }
  if (largest <= 0) largest = 1;
  const double step = TickStep(largest);
  const double limit = step * std::ceil(largest / step);
  PlotArea area(title, 0);
  for (int tick = 0; tick * step <= limit * (1 + 1e-9); ++tick) {
    const std::string label = fmt::format("{:.4g}", tick * step);
    area.AddVertical(tick * step / limit, label);
    area.AddHorizontal(tick * step / limit, label);
  }
  area.Add(fmt::format("<path d=\"M{} {}L{} {}\" stroke=\"#888\" stroke-dasharray=\"4\"/>\n",
                       area.X(0), area.Y(0), area.X(1), area.Y(1)));
  const std::size_t count = std::min(kMaxPoints, measured_ms.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * measured_ms.size() / count;
    area.Add(fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"#1f77b4\" fill-opacity=\"0.5\"/>\n",
        area.X(measured_ms[at] / limit), area.Y(predicted_ms[at] / limit)));
  }
  return area.Finish("measured (ms)", "predicted (ms)");
}

}  // namespace neuroshard
