#include "server/cost/cost_model.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/random.h"
#include "tests/support/concave_cost_model.h"

namespace neuroshard {
namespace {

std::vector<ShardFeatures> RandomShards(std::size_t count, Random& random) {
  std::vector<ShardFeatures> shards(count);
  for (ShardFeatures& shard : shards) {
    shard.rows = shard.table_rows = random.Between(1, 1'000'000);
    shard.cols = 4 * random.Between(1, 64);
    shard.pooling_factor = random.UniformReal() * 30;
  }
  return shards;
}

TEST(BoundCostModelTest, ASetCostsTheHeadOfItsSumWhicheverSetsAreBesideIt) {
  Random random(1);
  const BoundCostModel model = testing::BoundToRanks(4, testing::ConcaveCostModel());
  std::vector<std::vector<ShardFeatures>> sets;
  for (const std::size_t count : {3, 0, 1, 12, 0}) sets.push_back(RandomShards(count, random));
  const std::vector<ShardSetCost> costs = model.CostsOfSets(sets);
  ASSERT_EQ(costs.size(), sets.size());
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const std::size_t width = static_cast<std::size_t>(model.representation_width());
    std::vector<float> phi(sets[s].size() * width);
    std::vector<CommLoad> loads(sets[s].size());
    model.Represent(sets[s], phi, loads);
    std::vector<float> sum(width, 0.0F);
    CommLoad load;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      for (std::size_t w = 0; w < width; ++w) sum[w] += phi[i * width + w];
      load += loads[i];
    }
    ComputeCost expected;
    if (!sets[s].empty()) model.ComputeCosts(sum, {&expected, 1});
    EXPECT_EQ(costs[s].compute.total_ms, expected.total_ms) << s;
    EXPECT_EQ(costs[s].load, load) << s;
  }
}

TEST(CommOfOneRankTest, CostsNothingForCertain) {
  const auto comm = CommOfOneRank();
  const float load = 100;
  float cost_ms = 1;
  comm->ForwardCosts({&load, 1}, {&load, 1}, {&cost_ms, 1});
  EXPECT_EQ(cost_ms, 0);
  const std::vector<CommInterval> intervals = comm->Intervals(std::vector<RankComm>(1));
  ASSERT_EQ(intervals.size(), 1U);
  EXPECT_EQ(intervals[0].forward, CostInterval{});
}

}  // namespace
}  // namespace neuroshard
