#include "server/pretrain/data/record_split.h"

#include <gtest/gtest.h>

#include <set>

#include "server/pretrain/testing/synthetic_records.h"

namespace neuroshard {
namespace {

// Samples of 1..8 of 200 tables.
std::vector<ComputeRecord> RecordsOfTables(int count) {
  std::vector<ComputeRecord> records = SyntheticComputeRecords(count);
  Random random(3);
  for (ComputeRecord& record : records) {
    for (MeasuredShard& shard : record.sample.shards) {
      shard.table = "t" + std::to_string(random.Below(200));
    }
  }
  return records;
}

std::set<std::string> TablesOf(const std::vector<ComputeRecord>& records,
                               const std::vector<std::int64_t>& samples) {
  std::set<std::string> tables;
  for (const auto s : samples) {
    for (const auto& shard : records[s].sample.shards) tables.insert(shard.table);
  }
  return tables;
}

TEST(RecordSplitTest, EverySampleHasOnePlaceAndHeldOutTablesAreNowhereElse) {
  const std::vector<ComputeRecord> records = RecordsOfTables(1000);
  const ComputeSplit split = SplitCompute(records, 0.03, 1);
  std::vector<int> seen(records.size(), 0);
  for (const auto* part : {&split.samples.train, &split.samples.validation, &split.samples.test,
                           &split.unseen_tables}) {
    for (const auto s : *part) ++seen[s];
  }
  EXPECT_EQ(seen, std::vector<int>(records.size(), 1));
  EXPECT_EQ(split.tables, 200);
  EXPECT_EQ(split.held_out_tables, 6);
  EXPECT_GT(split.unseen_tables.size(), 50u);
  EXPECT_LE(split.unseen_tables.size(), 200u);
  EXPECT_EQ(TablesOf(records, split.samples.train).size(), 194u);
  EXPECT_NEAR(static_cast<double>(split.samples.test.size()), 90, 30);
}

TEST(RecordSplitTest, NoTableIsHeldOutThatMostSamplesHave) {
  std::vector<ComputeRecord> records = RecordsOfTables(400);
  for (ComputeRecord& record : records) {
    for (MeasuredShard& shard : record.sample.shards) shard.table = "the only one";
  }
  const ComputeSplit split = SplitCompute(records, 0.5, 1);
  EXPECT_EQ(split.held_out_tables, 0);
  EXPECT_TRUE(split.unseen_tables.empty());
}

TEST(RecordSplitTest, ASampleKeepsItsPlaceWhenTheStoreGrows) {
  const std::vector<ComputeRecord> records = RecordsOfTables(900);
  const SampleSplit all = SplitCompute(records, 0, 1).samples;
  const SampleSplit before = SplitCompute(std::span(records).first(500), 0, 1).samples;
  const std::set<std::int64_t> held_out(all.test.begin(), all.test.end());
  for (const auto s : before.test) EXPECT_TRUE(held_out.contains(s)) << s;
}

TEST(RecordSplitTest, SmallStoresHaveEveryPart) {
  const SampleSplit split = SplitComm(SyntheticCommRecords(20, 2), 1);
  EXPECT_EQ(split.test.size(), 2u);
  EXPECT_EQ(split.validation.size(), 2u);
  EXPECT_EQ(split.train.size(), 16u);
}

}  // namespace
}  // namespace neuroshard
