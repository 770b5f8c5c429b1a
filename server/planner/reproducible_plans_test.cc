// The same request, model and seed: the same bytes, however busy the machine is.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "common/codec/plan_codec.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/planner/planner.h"
#include "server/search/run_search.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/random_needs.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/trials.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::AddRandomNeeds;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::RandomPlanRequest;

// Keeps every core busy, twice over, until it goes.
class BusyMachine {
 public:
  BusyMachine() {
    const unsigned threads = 2 * std::max(1U, std::thread::hardware_concurrency());
    for (unsigned t = 0; t < threads; ++t) {
      threads_.emplace_back([this] {
        while (!done_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~BusyMachine() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> done_{false};
  std::vector<std::thread> threads_;
};

// What is planned as it comes: no steps, no budget.
std::string PlanBytes(const PlanRequest& request, std::shared_ptr<const CostModel> model) {
  const SteadyClock clock;
  const Planner planner([&](const PlanRequest&) { return std::vector{model}; }, RunSearch, clock);
  const auto answer = planner.MakePlan(request, NeverStop(), nullptr);
  if (!answer.ok()) return Message(answer.status());
  EXPECT_FALSE(answer->statistics.time_limit_reached);
  return EncodePlan(answer->plan).SerializeAsString() +
         EncodePlanCost(answer->cost).SerializeAsString() +
         std::to_string(answer->statistics.plans_evaluated);
}

TEST(ReproduciblePlansTest, TheDefaultSearchIsTheSameOnABusyMachine) {
  constexpr int kRequests = testing::Trials(200);
  Random random(41);
  std::vector<PlanRequest> requests;
  std::vector<std::shared_ptr<const CostModel>> models;
  for (int i = 0; i < kRequests; ++i) {
    requests.push_back(
        RandomPlanRequest(random, {.max_tables = 8, .max_ranks = 4, .min_slack = 1.5}));
    if (i % 4 == 3) AddRandomNeeds(random, requests.back());
    if (i % 2 == 0) {
      models.push_back(MakeAnalyticCostModel());
    } else {
      models.push_back(std::make_shared<ConcaveCostModel>(random.Next()));
    }
  }
  std::vector<std::string> quiet;
  for (int i = 0; i < kRequests; ++i) {
    const std::size_t at = static_cast<std::size_t>(i);
    quiet.push_back(PlanBytes(requests[at], models[at]));
  }
  const BusyMachine busy;
  for (int i = 0; i < kRequests; ++i) {
    const std::size_t at = static_cast<std::size_t>(i);
    ASSERT_EQ(PlanBytes(requests[at], models[at]), quiet[at]) << "request " << i;
  }
}

}  // namespace
}  // namespace neuroshard
