#include "client/sweep/progress_display.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/fake_clock.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using testing::FakeClock;

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
