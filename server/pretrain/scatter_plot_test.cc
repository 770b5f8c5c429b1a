#include "server/pretrain/scatter_plot.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace neuroshard {
namespace {

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ScatterPlotTest, DrawsEveryPointAndOnTheDiagonalWhenEqual) {
  const std::vector<double> values = {0.5, 1.0, 10.0};
  const std::string svg = ScatterPlot("compute <1>", values, values);
  EXPECT_EQ(Count(svg, "<circle"), 3);
  EXPECT_NE(svg.find("cx=\"540.0\" cy=\"60.0\""), std::string::npos);
  EXPECT_NE(svg.find("compute &lt;1>"), std::string::npos);
  EXPECT_EQ(Count(svg, "</svg>"), 1);
}

TEST(ScatterPlotTest, SurvivesNothingAndZeros) {
  EXPECT_EQ(Count(ScatterPlot("none", {}, {}), "<circle"), 0);
  const std::vector<double> zeros = {0, 0};
  const std::string svg = ScatterPlot("zeros", zeros, zeros);
  EXPECT_EQ(Count(svg, "<circle"), 2);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(ScatterPlotTest, BoundsTheNumberOfPoints) {
  const std::vector<double> many(100'000, 1.0);
  EXPECT_EQ(Count(ScatterPlot("many", many, many), "<circle"), 2000);
}

}  // namespace
}  // namespace neuroshard
