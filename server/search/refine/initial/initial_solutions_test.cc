#include "server/search/refine/initial/initial_solutions.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/evaluate/check_plan.h"
#include "tests/support/refine_bed.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

void ExpectLegal(RefineBed& bed) {
  for (const Violation& v : CheckPlan(bed.request, bed.PlanOf(bed.bench.solution.Units()))) {
    ADD_FAILURE() << v.field << ": " << v.description;
  }
}

TEST(InitialSolutionsTest, AllAreLegalAndTheCheapestIsHandedOut) {
  int legal = 0;
  int restarts = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RefineBed bed(seed);
    if (!bed.LoadLegal()) continue;
    ++legal;
    ExpectLegal(bed);
    const double first_ms = bed.bench.pricer.objective().cost_ms();
    NS_ASSERT_OK_AND_ASSIGN(const auto found, bed.bench.initial.FindCheap());
    if (found == InitialSolutions::Found::kNone) continue;
    ExpectLegal(bed);
    ASSERT_TRUE(bed.context.has_plan());
    const double cost_ms = bed.bench.pricer.objective().cost_ms();
    if (found == InitialSolutions::Found::kCheapest) {
      EXPECT_NEAR(cost_ms, bed.context.best_cost_ms(), 1e-4);
    } else {
      EXPECT_GE(cost_ms, bed.context.best_cost_ms() - 1e-4);
    }
    const double best_ms = std::min(first_ms, bed.context.best_cost_ms());
    Random once(seed);
    if (!bed.bench.initial.Restart(best_ms, once)) continue;
    ++restarts;
    ExpectLegal(bed);
    const double restart_ms = bed.bench.pricer.objective().cost_ms();
    Random again(seed);
    ASSERT_TRUE(bed.bench.initial.Restart(best_ms, again));
    EXPECT_EQ(bed.bench.pricer.objective().cost_ms(), restart_ms);
  }
  EXPECT_GT(legal, 40);
  EXPECT_GT(restarts, 30);
}

}  // namespace
}  // namespace neuroshard
