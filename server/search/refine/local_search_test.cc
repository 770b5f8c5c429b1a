#include "server/search/refine/local_search.h"

#include <gtest/gtest.h>

#include "server/evaluate/check_plan.h"
#include "tests/support/refine_bed.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::RefineBed;

TEST(LocalSearchTest, ImprovesTheSolutionAndStaysLegal) {
  int searched = 0;
  int better = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    RefineBed bed(seed);
    bed.request.search.refine_steps = 40;
    if (!bed.LoadLegal()) continue;
    ++searched;
    const double before_ms = bed.bench.pricer.objective().cost_ms();
    ASSERT_TRUE(SearchLocally(bed.bench, bed.initial, 0).ok());
    if (!bed.context.has_plan()) continue;  // nothing better was found
    ++better;
    EXPECT_LT(bed.context.best_cost_ms(), before_ms + 1e-4);
    for (const Violation& v : CheckPlan(bed.request, bed.context.best_plan())) {
      ADD_FAILURE() << seed << " " << v.field << ": " << v.description;
    }
  }
  EXPECT_GT(searched, 20);
  EXPECT_GT(better, searched / 2);
}

TEST(LocalSearchTest, TheSameStartGivesTheSamePlan) {
  for (const int start : {0, 1}) {
    RefineBed first(4);
    RefineBed second(4);
    for (RefineBed* const bed : {&first, &second}) {
      bed->request.search.refine_steps = 40;
      ASSERT_TRUE(bed->LoadLegal());
      ASSERT_TRUE(SearchLocally(bed->bench, bed->initial, start).ok());
    }
    ASSERT_EQ(first.context.has_plan(), second.context.has_plan());
    if (!first.context.has_plan()) continue;
    EXPECT_EQ(first.context.best_plan(), second.context.best_plan());
  }
}

TEST(LocalSearchTest, WithoutStepsNothingChanges) {
  RefineBed bed(4);
  bed.request.search.refine_steps = 0;
  ASSERT_TRUE(bed.LoadLegal());
  const Plan before = bed.PlanOf(bed.bench.solution.Units());
  ASSERT_TRUE(SearchLocally(bed.bench, bed.initial, 0).ok());
  EXPECT_EQ(bed.PlanOf(bed.bench.solution.Units()), before);
  EXPECT_FALSE(bed.context.has_plan());
}

}  // namespace
}  // namespace neuroshard
