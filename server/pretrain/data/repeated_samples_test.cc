#include "server/pretrain/data/repeated_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/pretrain/testing/synthetic_records.h"

namespace neuroshard {
namespace {

TEST(RepeatedSamplesTest, RepeatsBecomeTheMedianInThePlaceOfTheFirst) {
  auto records = SyntheticComputeRecords(2);
  for (const double cost : {9.0, 1.0}) {
    records.push_back(records[0]);
    records.back().sample.sample_id += ".2";
    records.back().forward_ms = cost;
    records.back().backward_ms = 2 * cost;
  }
  records[0].forward_ms = 3;
  records[0].backward_ms = 5;

  const auto merged = MergeRepeats(records);

  ASSERT_EQ(merged.size(), 2U);
  EXPECT_EQ(merged[0].sample, records[0].sample);
  EXPECT_EQ(merged[0].forward_ms, 3);
  EXPECT_EQ(merged[0].backward_ms, 5);
  EXPECT_EQ(merged[0].total_ms, 8);
  EXPECT_EQ(merged[1].sample, records[1].sample);
  EXPECT_EQ(merged[1].total_ms, records[1].forward_ms + records[1].backward_ms);
}

TEST(RepeatedSamplesTest, OrTheLeastOfThem) {
  auto records = SyntheticComputeRecords(1);
  records.push_back(records[0]);
  records[0].forward_ms = 3;
  records[0].backward_ms = 5;
  records[1].forward_ms = 2;
  records[1].backward_ms = 6;
  const auto merged = MergeRepeats(records, SeriesCost::kLeast);
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_EQ(merged[0].forward_ms, 2);
  EXPECT_EQ(merged[0].total_ms, 7);
  records[1].forward_ms = records[1].backward_ms = std::numeric_limits<double>::quiet_NaN();
  records[0].total_ms = 9;
  records[1].total_ms = 8;
  EXPECT_EQ(MergeRepeats(records, SeriesCost::kLeast)[0].total_ms, 8);
}

TEST(RepeatedSamplesTest, OneDifferenceMakesAnotherSample) {
  auto records = SyntheticComputeRecords(1);
  records.push_back(records[0]);
  records.back().sample.batch_size += 1;
  records.push_back(records[0]);
  records.back().sample.shards[0].pooling_factor += 1;
  EXPECT_EQ(MergeRepeats(records).size(), 3U);
}

TEST(RepeatedSamplesTest, TotalsAloneStayTotalsAlone) {
  auto records = SyntheticComputeRecords(1);
  records[0].forward_ms = records[0].backward_ms = std::numeric_limits<double>::quiet_NaN();
  records[0].total_ms = 4;
  records.push_back(records[0]);
  records.back().total_ms = 6;
  const auto merged = MergeRepeats(records);
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_TRUE(std::isnan(merged[0].forward_ms));
  EXPECT_EQ(merged[0].total_ms, 5);
}

TEST(RepeatedSamplesTest, CollectivesMergeRankByRank) {
  CommRecord record;
  record.sample.sample_id = "m0f";
  record.sample.dim_sums = {64, 32};
  record.cost_ms = {1, 10};
  CommRecord again = record;
  again.sample.sample_id = "m0f.2";
  again.cost_ms = {3, 30};
  CommRecord other = record;
  other.sample.direction = CommDirection::kBackward;
  const auto merged = MergeRepeats({record, other, again});
  ASSERT_EQ(merged.size(), 2U);
  EXPECT_THAT(merged[0].cost_ms, ::testing::ElementsAre(2, 20));
  EXPECT_THAT(merged[1].cost_ms, ::testing::ElementsAre(1, 10));
}

TEST(RepeatedSamplesTest, NoiseIsWhatAPerfectModelWouldBeChargedWith) {
  std::vector<ComputeRecord> records = SyntheticComputeRecords(2);
  records.push_back(records[0]);
  records[0].total_ms = 0.9;
  records[2].total_ms = 1.1;
  const RepeatNoise noise = NoiseOfRepeats(records);
  EXPECT_EQ(noise.samples, 1);
  EXPECT_NEAR(noise.mape_percent, 20 / std::sqrt(2.0), 1e-9);
  EXPECT_EQ(NoiseOfRepeats({}).samples, 0);
}

}  // namespace
}  // namespace neuroshard
