#include "worker/measure/exchange_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/violations.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::IsOk;
using ::testing::ElementsAre;

constexpr std::chrono::milliseconds kTimeout{1000};

CommSample Sample() {
  return {.sample_id = "s",
          .dim_sums = {10, 0, 3},
          .start_offsets_ms = {},
          .batch_size = 12,
          .element_bytes = 4};
}

TEST(ExchangeCountsTest, ForwardSendsOwnColumnsOfEveryRanksShare) {
  const Exchange counts = ExchangeOf(Sample(), 0);
  EXPECT_THAT(counts.send_bytes, ElementsAre(160, 160, 160));  // 12 / 3 samples x 10 columns x 4 B
  EXPECT_THAT(counts.receive_bytes, ElementsAre(160, 0, 48));
  EXPECT_DOUBLE_EQ(TotalExchangeBytes(Sample(), 0), 480 + 208);
}

TEST(ExchangeCountsTest, WhatIsCastIsThereBesides) {
  CommSample sample = Sample();
  sample.element_bytes = 2;
  sample.wire_dtype = DataType::kFp16;
  EXPECT_THAT(ExchangeOf(sample, 0).send_bytes, ElementsAre(80, 80, 80));
  EXPECT_DOUBLE_EQ(TotalExchangeBytes(sample, 0), (240 + 104) * 3);
}

TEST(ExchangeCountsTest, WhatOneSendsTheOtherReceivesInBothDirections) {
  for (const CommDirection direction : {CommDirection::kForward, CommDirection::kBackward}) {
    CommSample sample = Sample();
    sample.direction = direction;
    for (int a = 0; a < 3; ++a) {
      for (int b = 0; b < 3; ++b) {
        EXPECT_EQ(ExchangeOf(sample, a).send_bytes[b], ExchangeOf(sample, b).receive_bytes[a]);
      }
    }
  }
  CommSample backward = Sample();
  backward.direction = CommDirection::kBackward;
  EXPECT_EQ(ExchangeOf(backward, 2).send_bytes, ExchangeOf(Sample(), 2).receive_bytes);
}

TEST(ExchangeCountsTest, TheOtherCollectivesMoveEqualBlocks) {
  CommSample sample = Sample();
  sample.dim_sums = {10, 10, 10};
  sample.collective = Collective::kAllGather;
  EXPECT_EQ(ExchangeOf(sample, 0).block_bytes, 160);  // 12 / 3 samples x 10 columns x 4 B
  EXPECT_DOUBLE_EQ(TotalExchangeBytes(sample, 1), 160 + 480);
  sample.collective = Collective::kReduceScatter;
  EXPECT_DOUBLE_EQ(TotalExchangeBytes(sample, 1), 480 + 160 + 320);  // the last for partial sums
  sample.collective = Collective::kAllReduce;
  EXPECT_DOUBLE_EQ(TotalExchangeBytes(sample, 1), 480 + 480);
  EXPECT_THAT(CheckCommSample(sample, 3, kTimeout), IsOk());
  sample.dim_sums = {10, 10, 9};
  EXPECT_EQ(Violations::FromStatus(CheckCommSample(sample, 3, kTimeout)).at(0).field, "dim_sums");
}

TEST(ExchangeCountsTest, ChecksTheSampleAgainstTheGroup) {
  EXPECT_THAT(CheckCommSample(Sample(), 3, kTimeout), IsOk());

  CommSample bad = Sample();
  bad.start_offsets_ms = {0, 2500};
  bad.batch_size = 13;
  const std::vector<std::string> fields = FaultyFields(CheckCommSample(bad, 4, kTimeout));
  EXPECT_THAT(fields,
              ElementsAre("dim_sums", "start_offsets_ms", "start_offsets_ms[1]", "batch_size"));

  CommSample late = Sample();
  late.start_offsets_ms = {5000, 5999, 5000};
  EXPECT_THAT(CheckCommSample(late, 3, kTimeout), IsOk()) << "only the spread matters";
}

}  // namespace
}  // namespace neuroshard
