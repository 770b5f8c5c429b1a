#include "server/search/core/search_context.h"

#include <gtest/gtest.h>

#include "server/cost/analytic/analytic_cost_model.h"
#include "server/evaluate/lower_bound.h"
#include "tests/support/concave_cost_model.h"

namespace neuroshard {
namespace {

PlanRequest OneTable(SearchEffort effort) {
  PlanRequest request;
  request.tables.resize(1);
  request.tables[0].num_embeddings = 1'000;
  request.tables[0].embedding_dim = 16;
  request.tables[0].pooling_factor = 1;
  request.topology.devices.assign(2, Device{0, 1 << 30});
  request.search.effort = effort;
  return request;
}
BoundCostModel Formulas() { return *MakeAnalyticCostModel()->Bind({.num_ranks = 2}); }

// Where a search ends whose known cost is what `cost_ms` says of the work so far, in work of
// "quick".
template <typename Cost>
double EndOfWork(SearchEffort effort, const Cost& cost_ms, int rounds_of_quick = 0,
                 const BoundCostModel& model = Formulas()) {
  const PlanRequest request = OneTable(effort);
  const NeverStop never;
  SearchContext context(request, model, never, nullptr);
  constexpr double kQuickNs = 1e8;  // of so few tables
  int rounds = 0;
  while (!context.WorkSpent()) {
    context.AddWork(Work::kConstruction, 10'000);
    const double work = context.work_ns() / kQuickNs;
    context.NoteCost(cost_ms(work));
    for (; rounds < static_cast<int>(work * rounds_of_quick); ++rounds) context.CountRound();
  }
  return context.work_ns() / kQuickNs;
}

double Falling(double work) { return 100 / (1 + work); }

TEST(SearchContextTest, TheEffortSaysHowMuchWorkThereIs) {
  EXPECT_NEAR(EndOfWork(SearchEffort::kQuick, Falling), 1, 0.01);
  EXPECT_NEAR(EndOfWork(SearchEffort::kThorough, Falling), 100, 0.01);
}

TEST(SearchContextTest, AThoroughSearchEndsAtACertifiedBound) {
  const double bound_ms = LowerBoundOf(OneTable(SearchEffort::kThorough), Formulas()).cost_ms;
  const auto end = [](double cost_ms) {
    return EndOfWork(SearchEffort::kThorough, [&](double) { return cost_ms; });
  };
  EXPECT_NEAR(end(bound_ms * (1 + 1e-6)), 1, 0.01);
  EXPECT_NEAR(end(bound_ms * (1 + 1e-4)), 100, 0.01);
}

TEST(SearchContextTest, ByDefaultMoreIsDoneAsLongAsItPays) {
  const auto end = [](double gain_at, double cost_ms) {
    return EndOfWork(SearchEffort::kDefault,
                     [&](double work) { return work < gain_at ? 100 : cost_ms; });
  };
  EXPECT_NEAR(end(0.9, 99), 4, 0.01) << "nothing in the last three quarters";
  EXPECT_NEAR(end(1.1, 99), 8, 0.01);
  EXPECT_NEAR(end(2.1, 99), 16, 0.01);
  EXPECT_NEAR(end(1.1, 99.95), 4, 0.01) << "less than a thousandth";
  const double bound_ms = LowerBoundOf(OneTable(SearchEffort::kDefault), Formulas()).cost_ms;
  EXPECT_NEAR(end(0, 1.0005 * bound_ms), 1, 0.01) << "no plan is cheaper by a thousandth";
  EXPECT_NEAR(end(0, 1.002 * bound_ms), 4, 0.01);
  // A plan that becomes cheaper all the time: twice as long until the end would be beyond 5 s.
  EXPECT_NEAR(EndOfWork(SearchEffort::kDefault, Falling), 32, 0.01);
}

TEST(SearchContextTest, ByNetworksWorkWithFewRoundsSaysNothing) {
  const PlanRequest request = OneTable(SearchEffort::kDefault);
  const BoundCostModel network = testing::BoundTo(request, testing::ConcaveCostModel());
  const auto end = [](int rounds_of_quick, const BoundCostModel& model) {
    return EndOfWork(
        SearchEffort::kDefault, [](double) { return 1e9; }, rounds_of_quick, model);
  };
  EXPECT_NEAR(end(6, network), 8, 0.01) << "36 rounds in three quarters of it";
  EXPECT_NEAR(end(4, network), 16, 0.01);
  EXPECT_NEAR(end(0, network), 32, 0.01);
  EXPECT_NEAR(end(0, Formulas()), 4, 0.01);
}

TEST(SearchContextTest, StagesBeginAnew) {
  const PlanRequest request = OneTable(SearchEffort::kDefault);
  const BoundCostModel model = Formulas();
  const NeverStop never;
  SearchContext context(request, model, never, nullptr);
  context.NoteCost(100);
  context.AddWork(Work::kConstruction, 10'000'000);
  while (!context.WorkSpent()) context.AddWork(Work::kConstruction, 10'000'000);
  context.Begin({});
  context.StartWithWork(0);
  EXPECT_FALSE(context.WorkSpent());
}

}  // namespace
}  // namespace neuroshard
