#include "server/planner/thread_runner.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "server/search/run_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::BoundTo;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomPlanRequest;

TEST(ThreadRunnerTest, RunsEveryJobOnceAndTheFirstOnTheCaller) {
  std::array<std::thread::id, 5> ran_on;
  std::array<int, 5> runs{};
  ThreadRunner().Run(5, [&](int i) {
    ran_on[static_cast<std::size_t>(i)] = std::this_thread::get_id();
    ++runs[static_cast<std::size_t>(i)];
  });
  EXPECT_EQ(runs, (std::array{1, 1, 1, 1, 1}));
  EXPECT_EQ(ran_on[0], std::this_thread::get_id());
  EXPECT_NE(ran_on[1], ran_on[0]);
  ThreadRunner().Run(0, [](int) { FAIL(); });
}

TEST(ThreadRunnerTest, SearchesSideBySideFindWhatTheyFindOneAfterTheOther) {
  Random random(5);
  const ConcaveCostModel model;
  const ThreadRunner threads;
  int plans = 0;
  for (int i = 0; i < 12; ++i) {
    PlanRequest request = RandomPlanRequest(random, {.max_tables = 12});
    request.search.strategy = "refine";
    request.search.max_length = 2;
    request.search.refine_steps = 20;
    request.search.max_threads = 3;
    const auto serial = RunSearch(request, BoundTo(request, model), NeverStop(), nullptr);
    const auto parallel = SearchOn(threads)(request, BoundTo(request, model), NeverStop(), nullptr);
    ASSERT_EQ(serial.ok(), parallel.ok());
    if (!serial.ok()) continue;
    ASSERT_EQ(*serial, *parallel);
    ++plans;
  }
  EXPECT_GT(plans, 5);
}

}  // namespace
}  // namespace neuroshard
