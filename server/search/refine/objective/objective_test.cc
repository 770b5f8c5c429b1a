#include "server/search/refine/objective/objective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {
namespace {

std::vector<RankPrice> RandomPrices(Random& random, std::size_t ranks) {
  std::vector<RankPrice> prices;
  const auto near = [&](double value) { return value * (0.8 + 0.4 * random.UniformReal()); };
  for (std::size_t r = 0; r < ranks; ++r) {
    prices.push_back({near(10), near(1), near(2), near(500), near(500)});
  }
  return prices;
}

const Objective::Weights kWeights{.load_ms = 0.004, .work = 0.3};

TEST(ObjectiveTest, IsTheSameFromScratch) {
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    const auto prices = RandomPrices(random, 1 + random.Below(12));
    for (const bool separable : {false, true}) {
      Objective objective;
      objective.Reset(prices, separable, kWeights);
      const Objective::Value value = Objective::Evaluate(prices, separable, kWeights);
      EXPECT_NEAR(objective.cost_ms(), value.cost_ms, 1e-12);
      EXPECT_NEAR(objective.value_ms(), value.value_ms, 1e-9);
      double largest_ms = 0;
      for (const RankPrice& rank : prices) largest_ms = std::max(largest_ms, rank.total_ms());
      EXPECT_EQ(objective.cost_ms(), largest_ms);
      EXPECT_GT(objective.value_ms(), largest_ms);
    }
  }
}

TEST(ObjectiveTest, TheLargestValuesAreThoseOfTheOtherRanks) {
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    const auto prices = RandomPrices(random, 1 + random.Below(12));
    Objective objective;
    objective.Reset(prices, false, kWeights);
    std::vector<int> ranks;
    for (std::size_t r = 0; r < prices.size(); ++r) ranks.push_back(static_cast<int>(r));
    random.Shuffle(ranks);
    ranks.resize(std::min<std::size_t>(ranks.size(), random.Below(5)));
    Objective::LargestValues expected;
    for (std::size_t r = 0; r < prices.size(); ++r) {
      if (std::find(ranks.begin(), ranks.end(), static_cast<int>(r)) != ranks.end()) continue;
      expected.ready_ms = std::max(expected.ready_ms, prices[r].ready_ms());
      expected.total_ms = std::max(expected.total_ms, prices[r].total_ms());
      expected.forward_load = std::max(expected.forward_load, prices[r].forward_load);
      expected.backward_load = std::max(expected.backward_load, prices[r].backward_load);
    }
    const Objective::LargestValues unchanged = objective.LargestExcept(ranks);
    EXPECT_EQ(unchanged.ready_ms, expected.ready_ms);
    EXPECT_EQ(unchanged.total_ms, expected.total_ms);
    EXPECT_EQ(unchanged.forward_load, expected.forward_load);
    EXPECT_EQ(unchanged.backward_load, expected.backward_load);
  }
}

// Where communication is what the surrogate says, the estimate is the objective afterwards, but for
// the curvature of the power means.
TEST(ObjectiveTest, EstimatesSmallChanges) {
  Random random(3);
  const CommSurrogate surrogate{.backward_own = 0.001,
                                .backward_largest = 0.0005,
                                .forward_own = 0.002,
                                .forward_largest = 0.001,
                                .forward_wait = 0.7};
  for (int i = 0; i < 500; ++i) {
    const bool separable = i % 2 == 0;
    CommSurrogate comm = surrogate;
    if (separable) comm.backward_largest = comm.forward_largest = comm.forward_wait = 0;
    const auto before = RandomPrices(random, 2 + random.Below(10));
    Objective objective;
    objective.Reset(before, separable, kWeights);
    std::vector<RankChange> changes;
    std::vector<int> ranks;
    std::vector<RankPrice> after = before;
    for (int r = 0; r < 2; ++r) {
      const std::size_t at = static_cast<std::size_t>(r);
      const auto shift = [&](double& value) { value *= 0.99 + 0.02 * random.UniformReal(); };
      shift(after[at].compute_ms);
      shift(after[at].forward_load);
      shift(after[at].backward_load);
      changes.push_back({r, after[at].compute_ms, after[at].forward_load, after[at].backward_load});
      ranks.push_back(r);
    }
    const auto largest = [](const std::vector<RankPrice>& prices, const auto& value) {
      double most = 0;
      for (const RankPrice& rank : prices) most = std::max(most, value(rank));
      return most;
    };
    const auto grown = [&](const auto& value) {
      return largest(after, value) - largest(before, value);
    };
    const double backward = grown([](const RankPrice& r) { return r.backward_load; });
    const double forward = grown([](const RankPrice& r) { return r.forward_load; });
    for (std::size_t r = 0; r < after.size(); ++r) {
      after[r].backward_ms +=
          comm.backward_own * (after[r].backward_load - before[r].backward_load) +
          comm.backward_largest * backward;
    }
    const double later_ms = grown([](const RankPrice& r) { return r.ready_ms(); });
    for (std::size_t r = 0; r < after.size(); ++r) {
      after[r].forward_ms +=
          comm.forward_own * (after[r].forward_load - before[r].forward_load) +
          comm.forward_largest * forward +
          comm.forward_wait * (later_ms - (after[r].ready_ms() - before[r].ready_ms()));
    }
    const Objective::Value exact = Objective::Evaluate(after, separable, kWeights);
    const Objective::LargestValues unchanged = objective.LargestExcept(ranks);
    const double estimate_ms = objective.Estimate(changes, unchanged, comm);
    EXPECT_NEAR(estimate_ms, exact.value_ms, 2e-3 * exact.value_ms);
    // With a limit that the cost reaches, at least that comes back, and never more than the whole.
    const double limited_ms = objective.Estimate(changes, unchanged, comm, exact.cost_ms * 0.999);
    EXPECT_GE(limited_ms, exact.cost_ms * 0.999);
    EXPECT_LE(limited_ms, estimate_ms + 1e-9);
  }
}

TEST(ObjectiveTest, NoChangeIsEstimatedAsItIs) {
  Random random(4);
  for (int i = 0; i < 50; ++i) {
    const auto prices = RandomPrices(random, 1 + random.Below(12));
    Objective objective;
    objective.Reset(prices, false, kWeights);
    EXPECT_NEAR(objective.Estimate({}, objective.LargestExcept({}), {}), objective.value_ms(),
                1e-9);
  }
}

}  // namespace
}  // namespace neuroshard
