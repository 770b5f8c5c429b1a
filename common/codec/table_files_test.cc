// The readers of both text formats, on the files that the project ships.
#include "common/codec/table_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

using testing::HasSubstr;

const std::string kWorkloads = std::string(NEUROSHARD_SOURCE_DIR) + "/configs/workloads/";

std::string Header() {
  std::string header = "index,row,pooling_factor";
  for (int bin = 0; bin < kReuseBins; ++bin) header += ",bin_" + std::to_string(bin);
  return header + "\n";
}

std::string Line(const std::string& start, const std::string& first_bin = "1.0") {
  std::string line = start + "," + first_bin;
  for (int bin = 1; bin < kReuseBins; ++bin) line += ",0.0";
  return line + "\n";
}

TEST(TableCsvTest, ReadsTheShippedFile) {
  const auto tables = ReadTableCsv(kWorkloads + "dlrm_2021_tables856.csv");
  ASSERT_TRUE(tables.ok()) << Message(tables.status());
  ASSERT_EQ(tables->size(), 856u);
  EXPECT_EQ((*tables)[0].name, "table_0");
  EXPECT_EQ((*tables)[0].num_embeddings, 8015938);
  EXPECT_EQ((*tables)[0].pooling_factor, 22.375625610351562);
  EXPECT_EQ((*tables)[0].reuse_histogram[13], 2.1592396021816956e-05);
  EXPECT_EQ((*tables)[855].name, "table_855");
}

TEST(TableCsvTest, NamesEveryFaultyLine) {
  const std::string text = Header() + Line("0,10,1.5") + "1,10\n" + Line("7,0,x") + "\n" +
                           Line("3,10,2", "0.5") + Line("4,1e3,nan", "-1");
  const Status status = ParseTableCsv(text).status();
  const std::vector<std::string> fields = FaultyFields(status);
  EXPECT_THAT(fields, testing::ElementsAre("line 3.columns", "line 4.index", "line 4.row",
                                           "line 4.pooling_factor", "line 6.bins", "line 7.row",
                                           "line 7.pooling_factor", "line 7.bin_0", "line 7.bins"));
}

TEST(TableCsvTest, RefusesOtherFiles) {
  EXPECT_THAT(Message(ParseTableCsv("").status()), HasSubstr("line 1: must be"));
  EXPECT_THAT(Message(ParseTableCsv("a,b\n1,2\n").status()), HasSubstr("line 1: must be"));
  EXPECT_THAT(Message(ParseTableCsv(Header()).status()), HasSubstr("end of the file"));
  EXPECT_EQ(ReadTableCsv("/nowhere.csv").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(ParseTableCsv(Header() + Line("0,10,0", "0")).ok());  // never looked up
}

TEST(TaskFileTest, ReadsTheShippedFiles) {
  const auto tables = ReadTableCsv(kWorkloads + "dlrm_2021_tables856.csv");
  ASSERT_TRUE(tables.ok());
  for (const int max_dim : {16, 128}) {
    const auto tasks =
        ReadTaskFile(kWorkloads + "tasks_4gpu_maxdim" + std::to_string(max_dim) + ".txt");
    ASSERT_TRUE(tasks.ok()) << Message(tasks.status());
    ASSERT_EQ(tasks->size(), 100u);
    for (const BenchmarkTask& task : *tasks) {
      EXPECT_GE(task.size(), 10u);
      EXPECT_LT(task.size(), 60u);
      const auto drawn = TablesOfTask(*tables, task);
      ASSERT_TRUE(drawn.ok()) << Message(drawn.status());
      for (const Table& table : *drawn) EXPECT_LE(table.embedding_dim, max_dim);
    }
  }
}

TEST(TaskFileTest, ATableDrawnAgainIsATableOfItsOwn) {
  std::vector<Table> tables(2);
  tables[0].name = "table_0";
  tables[1].name = "table_1";
  const auto tasks = ParseTaskFile("1,0,1,1 8,16,32,64\r\n");
  ASSERT_TRUE(tasks.ok()) << Message(tasks.status());
  const auto drawn = TablesOfTask(tables, tasks->at(0));
  ASSERT_TRUE(drawn.ok());
  std::vector<std::string> names;
  for (const Table& table : *drawn) names.push_back(table.name);
  EXPECT_THAT(names, testing::ElementsAre("table_1", "table_0", "table_1_use2", "table_1_use3"));
  EXPECT_EQ((*drawn)[3].embedding_dim, 64);
  EXPECT_THAT(Message(TablesOfTask(tables, {{2, 4}}).status()), HasSubstr("from 0 to 1, got 2"));
}

TEST(TaskFileTest, NamesEveryFaultyLine) {
  const Status status = ParseTaskFile("1,2 4,8\n1,2 4\n\n1,x 4,8\n1 0\n1,2\n-1 4\n").status();
  const std::vector<std::string> fields = FaultyFields(status);
  EXPECT_THAT(fields, testing::ElementsAre("line 2.dims", "line 4.indices", "line 5.dims",
                                           "line 6.parts", "line 7.indices"));
  EXPECT_FALSE(ParseTaskFile("\n").ok());
}

}  // namespace
}  // namespace neuroshard
