#include "server/search/refine/solution/plan_units.h"

#include <gtest/gtest.h>

#include "server/evaluate/check_plan.h"
#include "server/evaluate/price_plan.h"
#include "tests/support/random_plan.h"
#include "tests/support/refine_bed.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

// Columns change places and types that cost the same become one; the cost stays, or falls where
// the plan paid for the exchange of a type that became another.
TEST(PlanUnitsTest, ThereAndBackAPlanCostsTheSame) {
  int plans = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    testing::RefineBed bed(seed);
    const Plan plan = testing::RandomPlan(bed.random(), bed.request);
    if (!CheckPlan(bed.request, plan).empty()) continue;
    ++plans;
    bed.bench.Load(plan);
    const Plan back = bed.PlanOf(bed.bench.solution.Units());
    for (const Violation& v : CheckPlan(bed.request, back)) {
      ADD_FAILURE() << seed << " " << v.field << ": " << v.description;
    }
    NS_ASSERT_OK_AND_ASSIGN(const PlanCost before, PricePlan(bed.request, plan, bed.model));
    NS_ASSERT_OK_AND_ASSIGN(const PlanCost after, PricePlan(bed.request, back, bed.model));
    EXPECT_LE(after.embedding_cost_ms, before.embedding_cost_ms + 1e-4) << seed;
    if (!bed.model.prices_exchanges()) {
      EXPECT_NEAR(before.embedding_cost_ms, after.embedding_cost_ms, 1e-4) << seed;
    }
    EXPECT_NEAR(bed.bench.pricer.objective().cost_ms(), after.embedding_cost_ms, 1e-4) << seed;
    bed.bench.Load(back);
    EXPECT_EQ(bed.PlanOf(bed.bench.solution.Units()), back);
  }
  EXPECT_GT(plans, 20);
}

}  // namespace
}  // namespace neuroshard
