#include "client/sweep/progress_text.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(FormatDurationTest, RoundsUpAndGrowsWithItsSize) {
  EXPECT_EQ(FormatDuration(0), "0:00");
  EXPECT_EQ(FormatDuration(1), "0:01");
  EXPECT_EQ(FormatDuration(61'000), "1:01");
  EXPECT_EQ(FormatDuration(3'600'000 + 5 * 60'000 + 9'000), "1:05:09");
  EXPECT_EQ(FormatDuration(-5), "0:00");
}

TEST(ProgressLineTest, RateAndEtaAreOfThisRun) {
  // 50 of the 100 done were there before; the other 50 took 25 s, so the missing 100 take 50 s.
  EXPECT_EQ(ProgressLine({"compute", 200, 100, 50, 0, 25'000}),
            "compute 100/200 50% 2.00/s ETA 0:50");
}

TEST(ProgressLineTest, BeforeTheFirstRecordNothingIsPromised) {
  EXPECT_EQ(ProgressLine({"comm", 10, 4, 4, 0, 9'000}), "comm 4/10 40% ETA ?");
}

TEST(ProgressLineTest, OutOfMemoryIsTold) {
  EXPECT_EQ(ProgressLine({"compute", 4, 2, 0, 1, 2'000}),
            "compute 2/4 50% 1 out of memory 1.00/s ETA 0:02");
}

TEST(ProgressLineTest, HundredPercentOnlyWhenDone) {
  EXPECT_EQ(ProgressLine({"compute", 1000, 999, 0, 0, 999}),
            "compute 999/1000 99% 1000.00/s ETA 0:01");
  EXPECT_EQ(ProgressLine({"compute", 1000, 1000, 0, 0, 61'000}),
            "compute 1000/1000 100% done in 1:01");
}

TEST(ProgressBarTest, FillsWithTheShare) {
  EXPECT_EQ(ProgressBar({"comm", 4, 1, 1, 0, 0}, 8), "[##------] comm 1/4 25% ETA ?");
  EXPECT_EQ(ProgressBar({"comm", 0, 0, 0, 0, 0}, 4), "[####] comm 0/0 100% done in 0:00");
}

}  // namespace
}  // namespace neuroshard
