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
    NS_ASSERT_OK_AND_ASSIGN(const auto found, bed.initial.FindCheap());
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
    if (!bed.initial.Restart(best_ms, once)) continue;
    ++restarts;
    ExpectLegal(bed);
    const double restart_ms = bed.bench.pricer.objective().cost_ms();
    Random again(seed);
    ASSERT_TRUE(bed.initial.Restart(best_ms, again));
    EXPECT_EQ(bed.bench.pricer.objective().cost_ms(), restart_ms);
  }
  EXPECT_GT(legal, 40);
  EXPECT_GT(restarts, 30);
}

TEST(InitialSolutionsTest, ConstructionsTakeAnEighthOfAQuickSearch) {
  PlanRequest request;
  request.global_batch_size = 1 << 16;
  request.tables.resize(400);
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    Table& table = request.tables[t];
    table.name = std::to_string(t);
    table.num_embeddings = 1000 + 977 * static_cast<std::int64_t>(t);
    table.embedding_dim = 64;
    table.pooling_factor = static_cast<double>(1 + t % 20);
    table.reuse_histogram[0] = 1;
  }
  request.topology.devices.assign(64, {.memory_bytes = std::int64_t{1} << 35});
  for (const bool until_steps : {false, true}) {
    if (until_steps) request.search.refine_steps = 10;
    const BoundCostModel model = testing::BoundTo(request, testing::ConcaveCostModel(1));
    const NeverStop never;
    SearchContext context(request, model, never, nullptr);
    const CompiledRules rules(request, TypeSet::All());
    const TableLayouts layouts(request, rules);
    Workbench bench(context, rules, layouts);
    InitialSolutions initial(bench);
    ASSERT_TRUE(initial.FindLegal().ok());
    const double before_ns = context.work_ns();
    ASSERT_TRUE(initial.FindCheap().ok());
    EXPECT_TRUE(context.has_plan());
    const double share = (context.work_ns() - before_ns) / context.least_work_ns();
    // Without a limit it is 0.35; pricing the first plan and the last construction come on top.
    EXPECT_GT(share, 0.125);
    EXPECT_LT(share, 0.2);
  }
}

}  // namespace
}  // namespace neuroshard
