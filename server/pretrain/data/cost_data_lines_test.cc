#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/pretrain/data/cost_data_import.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CostDataLinesTest, ReadsComputeLinesOfBothForms) {
  const ComputeCostLine expected{{3, 17, 3}, 1.25};
  for (const char* line : {"3,17,3 1.25", "  3,17,3\t1.25  \r", "task: 3,17,3 | cost: 1.25",
                           "task:[3, 17, 3]|cost:1.25", "task: 3, 17, 3 | cost: 12.5e-1\r"}) {
    EXPECT_EQ(ParseComputeCostLine(line, 18), expected) << line;
  }
}

TEST(CostDataLinesTest, RefusesMalformedComputeLines) {
  for (const char* line : {"", "1,2", "1,2 3 4", "1,,2 3", "1,2, 3", "18 1.0", "-1 1.0", "1.5 1.0",
                           "1 -1.0", "1 nan", "1 inf", "1 1.0ms", "a 1.0", "task: 1 cost: 2",
                           "task: 1 | 2", "task: | cost: 2", "1 1e999"}) {
    EXPECT_FALSE(ParseComputeCostLine(line, 18).has_value()) << line;
  }
}

TEST(CostDataLinesTest, ReadsCommLines) {
  EXPECT_EQ(ParseCommCostLine("512,256.0 0,7 1.5,2 3,0.25\r"),
            (CommCostLine{{512, 256}, {0, 7}, {1.5, 2}, {3, 0.25}}));
}

TEST(CostDataLinesTest, RefusesMalformedCommLines) {
  for (const char* line :
       {"", "1,2 0,0 1,1", "1,2 0,0 1,1 1", "1,2 0,0 1,1 1,1 1,1", "1,2.5 0,0 1,1 1,1",
        "1,2 0,-1 1,1 1,1", "1,2 0,0 nan,1 1,1", "1,2 0 1,1 1,1"}) {
    EXPECT_FALSE(ParseCommCostLine(line).has_value()) << line;
  }
}

nlohmann::json GoodTable() {
  nlohmann::json table = {{"row", 1000}, {"dim", 64}, {"pooling_factor", 2.5}, {"note", "x"}};
  for (int bin = 0; bin < kReuseBins; ++bin) {
    table["bin_" + std::to_string(bin)] = bin == 0 ? 0.75 : bin == 16 ? 0.25 : 0.0;
  }
  return table;
}

TEST(CostDataLinesTest, ReadsTableConfigs) {
  const auto tables = ParseTableConfigs(nlohmann::json::array({GoodTable()}).dump());
  ASSERT_TRUE(tables.ok()) << tables.status();
  ASSERT_EQ(tables->size(), 1u);
  const MeasuredShard& table = tables->front();
  EXPECT_EQ(table.rows, 1000);
  EXPECT_EQ(table.cols, 64);
  EXPECT_EQ(table.pooling_factor, 2.5);
  EXPECT_EQ(table.reuse_histogram[0], 0.75);
  EXPECT_EQ(table.reuse_histogram[16], 0.25);
  EXPECT_EQ(table.weight_dtype, DataType::kFp32);
}

TEST(CostDataLinesTest, NamesEveryFaultOfTableConfigs) {
  nlohmann::json first = GoodTable();
  first["dim"] = 0;
  first.erase("bin_7");
  nlohmann::json second = GoodTable();
  second["row"] = "many";
  const auto tables = ParseTableConfigs(nlohmann::json::array({first, second, 3}).dump());
  EXPECT_EQ(tables.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(tables.status()),
              AllOf(HasSubstr("[0].dim: must be in [1"), HasSubstr("got 0"),
                    HasSubstr("[0].bin_7: is missing"), HasSubstr("[1].row: must be a number"),
                    HasSubstr("[2]: must be a table")));
  for (const char* text : {"", "{", "{}", "[]", "null"}) {
    EXPECT_FALSE(ParseTableConfigs(text).ok()) << text;
  }
}

}  // namespace
}  // namespace neuroshard
