#include "server/search/core/search_context.h"

#include <gtest/gtest.h>

#include <memory>

#include "server/cost/analytic/analytic_cost_model.h"

namespace neuroshard {
namespace {

// Where a search ends whose known cost is what `cost_ms` says of the work so far, in work of
// "quick".
template <typename Cost>
double EndOfWork(SearchEffort effort, const Cost& cost_ms) {
  PlanRequest request;
  request.tables.resize(1);
  request.topology.devices.resize(2);
  request.search.effort = effort;
  const std::shared_ptr<const CostModel> analytic = MakeAnalyticCostModel();
  const StatusOr<BoundCostModel> model = analytic->Bind({.num_ranks = 2});
  const NeverStop never;
  SearchContext context(request, *model, never, nullptr);
  constexpr double kQuickNs = 1e8;  // of so few tables
  while (!context.WorkSpent()) {
    context.AddWork(Work::kConstruction, 10'000);
    context.NoteCost(cost_ms(context.work_ns() / kQuickNs));
  }
  return context.work_ns() / kQuickNs;
}

double Half(double work) { return work < 0.4 ? 100 : 99; }

TEST(SearchContextTest, TheEffortSaysHowMuchWorkThereIs) {
  EXPECT_NEAR(EndOfWork(SearchEffort::kQuick, Half), 1, 0.01);
  EXPECT_NEAR(EndOfWork(SearchEffort::kThorough, Half), 100, 0.01);
}

TEST(SearchContextTest, ByDefaultMoreIsDoneAsLongAsItPays) {
  EXPECT_NEAR(EndOfWork(SearchEffort::kDefault, Half), 1, 0.01) << "nothing in the second half";
  EXPECT_NEAR(EndOfWork(SearchEffort::kDefault, [](double work) { return work < 0.9 ? 100 : 99; }),
              2, 0.01);
  EXPECT_NEAR(
      EndOfWork(SearchEffort::kDefault, [](double work) { return work < 0.9 ? 100 : 99.95; }), 1,
      0.01)
      << "less than a thousandth";
  // A plan that becomes cheaper all the time: twice as long until the end would be beyond 5 s.
  EXPECT_NEAR(EndOfWork(SearchEffort::kDefault, [](double work) { return 100 / (1 + work); }), 32,
              0.01);
}

TEST(SearchContextTest, StagesBeginAnew) {
  PlanRequest request;
  request.tables.resize(1);
  request.topology.devices.resize(2);
  const std::shared_ptr<const CostModel> analytic = MakeAnalyticCostModel();
  const StatusOr<BoundCostModel> model = analytic->Bind({.num_ranks = 2});
  const NeverStop never;
  SearchContext context(request, *model, never, nullptr);
  context.NoteCost(100);
  context.AddWork(Work::kConstruction, 10'000'000);
  while (!context.WorkSpent()) context.AddWork(Work::kConstruction, 10'000'000);
  context.Begin({});
  context.StartWithWork(0);
  EXPECT_FALSE(context.WorkSpent());
}

}  // namespace
}  // namespace neuroshard
