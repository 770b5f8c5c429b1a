#include "server/pretrain/scatter_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

namespace neuroshard {
namespace {

constexpr double kSize = 480;  // of the plotting area, pixels
constexpr double kMargin = 60;
constexpr std::size_t kMaxPoints = 2000;
constexpr int kTicks = 5;

// The smallest of 1, 2, 5 x 10^k that is at least value / kTicks, so that tick labels are short.
double TickStep(double value) {
  const double raw = value / kTicks;
  const double decade = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= raw) return factor * decade;
  }
  return 10 * decade;
}

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

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
  const auto x = [&](double ms) { return kMargin + kSize * ms / limit; };
  const auto y = [&](double ms) { return kMargin + kSize * (1 - ms / limit); };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {0}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{0}\" fill=\"white\"/>\n"
      "<text x=\"{1}\" y=\"30\" text-anchor=\"middle\" font-size=\"15\">{2}</text>\n",
      kSize + 2 * kMargin, kMargin + kSize / 2, Escaped(title));
  for (int tick = 0; tick * step <= limit * (1 + 1e-9); ++tick) {
    const double ms = tick * step;
    svg += fmt::format(
        "<path d=\"M{0:.1f} {1:.1f}V{2:.1f}M{3:.1f} {4:.1f}H{5:.1f}\" stroke=\"#ddd\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{6:.1f}\" text-anchor=\"middle\">{8:.4g}</text>\n"
        "<text x=\"{7:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{8:.4g}</text>\n",
        x(ms), y(0), y(limit), x(0), y(ms), x(limit), y(0) + 18, x(0) - 6, ms);
  }
  svg += fmt::format("<path d=\"M{} {}L{} {}\" stroke=\"#888\" stroke-dasharray=\"4\"/>\n", x(0),
                     y(0), x(limit), y(limit));
  const std::size_t count = std::min(kMaxPoints, measured_ms.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * measured_ms.size() / count;
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"#1f77b4\" fill-opacity=\"0.5\"/>\n",
        x(measured_ms[at]), y(predicted_ms[at]));
  }
  svg += fmt::format(
      "<text x=\"{0}\" y=\"{1}\" text-anchor=\"middle\">measured (ms)</text>\n"
      "<text transform=\"translate(16 {0}) rotate(-90)\" text-anchor=\"middle\">predicted (ms)"
      "</text>\n</svg>\n",
      kMargin + kSize / 2, kSize + 2 * kMargin - 16);
  return svg;
}

}  // namespace neuroshard
