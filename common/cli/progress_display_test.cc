#include "common/cli/progress_display.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/fake_clock.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using testing::FakeClock;

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

TEST(ProgressLineTest, WhatMayEndEarlyHasADetailAndABound) {
  EXPECT_EQ(ProgressLine({"compute epoch", 100, 10, 0, 0, 5'000, "loss 0.5"}),
            "compute epoch 10/100 10% loss 0.5 2.00/s ETA at most 0:45");
}

TEST(ProgressDisplayTest, ALogGetsALineEveryFewSeconds) {
  std::ostringstream out;
  FakeClock clock;
  ProgressDisplay display(out, clock, DisplayMode::kLog);
  display.Begin("compute", 4, 0);
  display.Add(false);
  clock.Advance(milliseconds(4'900));
  display.Tick();
  clock.Advance(milliseconds(100));
  display.Tick();
  display.Tick();
  display.Note("worker lost");
  display.Add(true);
  clock.Advance(milliseconds(1'000));
  display.End();
  EXPECT_EQ(out.str(),
            "compute 0/4 0% ETA ?\n"
            "compute 1/4 25% 0.20/s ETA 0:15\n"
            "worker lost\n"
            "compute 2/4 50% 1 out of memory 0.33/s ETA 0:06\n");
}

TEST(ProgressDisplayTest, ATerminalGetsOneLineThatIsRedrawn) {
  std::ostringstream out;
  FakeClock clock;
  ProgressDisplay display(out, clock, DisplayMode::kTerminal);
  display.Begin("comm", 2, 1);
  clock.Advance(milliseconds(199));
  display.Tick();
  display.Note("worker lost");
  display.Add(false);
  display.End();
  EXPECT_EQ(out.str(),
            "\r\x1b[K[##########----------] comm 1/2 50% ETA ?"
            "\r\x1b[Kworker lost\n"
            "\r\x1b[K[##########----------] comm 1/2 50% ETA ?"
            "\r\x1b[K[####################] comm 2/2 100% done in 0:01\n");
}

TEST(ProgressDisplayTest, AnUpdateIsShownWhenItsTimeHasCome) {
  std::ostringstream out;
  FakeClock clock;
  ProgressDisplay display(out, clock, DisplayMode::kLog);
  display.Begin("compute epoch", 10, 0);
  display.Update(1, "loss 0.5");
  clock.Advance(milliseconds(5'000));
  display.Update(2, "loss 0.4");
  EXPECT_EQ(out.str(),
            "compute epoch 0/10 0% ETA ?\n"
            "compute epoch 2/10 20% loss 0.4 0.40/s ETA at most 0:20\n");
}

TEST(ProgressDisplayTest, NotesNeedNoProgress) {
  std::ostringstream out;
  FakeClock clock;
  ProgressDisplay display(out, clock, DisplayMode::kTerminal);
  display.Note("hello");
  display.Tick();
  display.End();
  EXPECT_EQ(out.str(), "hello\n");
}

}  // namespace
}  // namespace neuroshard
