#include "server/planner/budget_stop.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;
using std::chrono::milliseconds;

TEST(BudgetStopTest, CountsFromTheFirstPlan) {
  FakeClock clock;
  const NeverStop never;
  BudgetStop stop(never, clock, milliseconds(100));
  clock.Advance(milliseconds(5000));
  EXPECT_FALSE(stop.ShouldStop());
  stop.Start();
  clock.Advance(milliseconds(99));
  stop.Start();  // a better plan does not buy time
  EXPECT_FALSE(stop.ShouldStop());
  clock.Advance(milliseconds(1));
  EXPECT_TRUE(stop.ShouldStop());
}

TEST(BudgetStopTest, ZeroStopsAtTheFirstPlanAndNoneNever) {
  FakeClock clock;
  const NeverStop never;
  BudgetStop zero(never, clock, milliseconds(0));
  EXPECT_FALSE(zero.ShouldStop());
  zero.Start();
  EXPECT_TRUE(zero.ShouldStop());

  BudgetStop none(never, clock, std::nullopt);
  none.Start();
  clock.Advance(std::chrono::hours(1000));
  EXPECT_FALSE(none.ShouldStop());
}

TEST(BudgetStopTest, SaysHowMuchIsSpent) {
  FakeClock clock;
  const NeverStop never;
  BudgetStop stop(never, clock, milliseconds(100));
  clock.Advance(milliseconds(50));
  EXPECT_EQ(stop.spent(), 0);
  stop.Start();
  clock.Advance(milliseconds(25));
  EXPECT_DOUBLE_EQ(stop.spent(), 0.25);
  clock.Advance(milliseconds(200));
  EXPECT_EQ(stop.spent(), 1);

  BudgetStop zero(never, clock, milliseconds(0));
  zero.Start();
  EXPECT_EQ(zero.spent(), 1);
  BudgetStop none(never, clock, std::nullopt);
  none.Start();
  clock.Advance(milliseconds(1));
  EXPECT_EQ(none.spent(), 0);
}

TEST(BudgetStopTest, TimeIsLeftUntilTheBudgetHasPassedSinceTheBeginning) {
  FakeClock clock;
  ManualStop outer;
  const BudgetStop stop(outer, clock, milliseconds(100));
  clock.Advance(milliseconds(99));
  EXPECT_TRUE(stop.HasTimeLeft());
  clock.Advance(milliseconds(1));
  EXPECT_FALSE(stop.HasTimeLeft());
  EXPECT_FALSE(stop.ShouldStop());
  EXPECT_FALSE(BudgetStop(outer, clock, std::nullopt).HasTimeLeft());
  const BudgetStop cut(outer, clock, milliseconds(100));
  outer.Stop();
  EXPECT_FALSE(cut.HasTimeLeft());
}

TEST(BudgetStopTest, TheOuterStopAlwaysCounts) {
  FakeClock clock;
  ManualStop outer;
  const BudgetStop stop(outer, clock, milliseconds(100));
  EXPECT_FALSE(stop.ShouldStop());
  outer.Stop();
  EXPECT_TRUE(stop.ShouldStop());
}

}  // namespace
}  // namespace neuroshard
