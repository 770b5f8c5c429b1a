#include "server/pretrain/plot_area.h"

#include <fmt/format.h>

#include <cmath>

namespace neuroshard {
namespace {

constexpr double kSize = 480;  // pixels
constexpr double kMargin = 60;
constexpr int kTicks = 5;

}  // namespace

PlotArea::PlotArea(std::string_view title, double legend_width) : legend_width_(legend_width) {
  body_ = fmt::format("<text x=\"{}\" y=\"30\" text-anchor=\"middle\" font-size=\"15\">{}</text>\n",
                      kMargin + kSize / 2, SvgText(title));
}

double PlotArea::X(double share) const { return kMargin + kSize * share; }

double PlotArea::Y(double share) const { return kMargin + kSize * (1 - share); }

void PlotArea::AddVertical(double share, std::string_view label) {
  body_ += fmt::format(
      "<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" stroke=\"#ddd\"/>\n"
      "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
      X(share), Y(0), Y(1), Y(0) + 18, SvgText(label));
}

void PlotArea::AddHorizontal(double share, std::string_view label) {
  body_ += fmt::format(
      "<path d=\"M{0:.1f} {1:.1f}H{2:.1f}\" stroke=\"#ddd\"/>\n"
      "<text x=\"{3:.1f}\" y=\"{1:.1f}\" text-anchor=\"end\">{4}</text>\n",
      X(0), Y(share), X(1), X(0) - 6, SvgText(label));
}

std::string PlotArea::Finish(std::string_view x_label, std::string_view y_label) const {
  const double height = kSize + 2 * kMargin;
  const double width = height + legend_width_;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "{2}"
      "<text x=\"{3}\" y=\"{4}\" text-anchor=\"middle\">{5}</text>\n"
      "<text transform=\"translate(16 {3}) rotate(-90)\" text-anchor=\"middle\">{6}</text>\n"
      "</svg>\n",
      width, height, body_, kMargin + kSize / 2, height - 16, SvgText(x_label), SvgText(y_label));
}

std::string SvgText(std::string_view text) {
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

double TickStep(double extent) {
  const double raw = extent / kTicks;
  const double decade = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= raw) return factor * decade;
  }
  return 10 * decade;
}

}  // namespace neuroshard
