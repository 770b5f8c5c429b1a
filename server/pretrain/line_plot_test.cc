#include "server/pretrain/line_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace neuroshard {
namespace {

struct DrawnPoint {
  double x = 0;
  double y = 0;
};

std::vector<DrawnPoint> PointsOf(const std::string& svg) {
  const auto number_after = [&](const std::string& text, std::size_t& at) {
    at = svg.find(text, at) + text.size();
    return std::stod(svg.substr(at));
  };
  std::vector<DrawnPoint> points;
  std::size_t at = 0;
  while ((at = svg.find("<circle", at)) != std::string::npos) {
    DrawnPoint& point = points.emplace_back();
    point.x = number_after("cx=\"", at);
    point.y = number_after("cy=\"", at);
  }
  return points;
}

TEST(LinePlotTest, FactorsAreEquallyFarApartAndLargerValuesHigher) {
  const std::vector<PlotLine> lines = {{"a < b", {10, 100, 1000}, {40, 20, 10}},
                                       {"b", {10, 1000}, {20, 20}}};
  const std::string svg = LinePlot({"title", "x", "y"}, lines, 0);
  const std::vector<DrawnPoint> points = PointsOf(svg);
  ASSERT_EQ(points.size(), 5u);
  EXPECT_NEAR(points[1].x - points[0].x, points[2].x - points[1].x, 0.2);
  EXPECT_EQ(points[0].x, 60);
  EXPECT_EQ(points[2].x, 540);
  EXPECT_LT(points[0].y, points[1].y);
  EXPECT_NEAR(points[2].y - points[1].y, (points[1].y - points[0].y) / 2, 0.2);
  EXPECT_EQ(points[3].y, points[1].y);
  EXPECT_NEAR(points[0].y, 60, 0.1);  // 0 to 40: a tick is at both ends
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
}

TEST(LinePlotTest, SurvivesWhatIsMissing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(PointsOf(LinePlot({}, {}, 0)).empty());
  const std::vector<PlotLine> lines = {{"one", {5}, {0}}, {"gap", {5, 5, 0}, {1, nan, 1}}};
  for (const double shown : {0.0, 1.0}) {
    const std::string svg = LinePlot({"title", "x", "y"}, lines, shown);
    EXPECT_EQ(PointsOf(svg).size(), 2u);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
  }
}

}  // namespace
}  // namespace neuroshard
