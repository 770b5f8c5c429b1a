#include "server/cost/cost_model.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/random.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/fake_cost_model.h"

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

TEST(BoundCostModelTest, SetsThatShareShardsCostWhatSetsOfTheirOwnDo) {
  Random random(2);
  const BoundCostModel model = testing::BoundToRanks(4, testing::ConcaveCostModel());
  ShardSets shared;
  shared.shards = RandomShards(3, random);
  shared.sets = {{0, 1, 1}, {}, {2}, {1, 0, 2, 1}};
  std::vector<std::vector<ShardFeatures>> own;
  for (const std::vector<int>& set : shared.sets) {
    own.emplace_back();
    for (const int shard : set)
      own.back().push_back(shared.shards[static_cast<std::size_t>(shard)]);
  }
  const std::vector<ShardSetCost> costs = model.CostsOfSets(shared);
  const std::vector<ShardSetCost> expected = model.CostsOfSets(own);
  ASSERT_EQ(costs.size(), expected.size());
  for (std::size_t s = 0; s < costs.size(); ++s) {
    EXPECT_EQ(costs[s].compute.total_ms, expected[s].compute.total_ms) << s;
    EXPECT_EQ(costs[s].load, expected[s].load) << s;
  }
}

// It has intervals where no shard has more columns.
class NarrowCompute final : public testing::FakeCompute {
 public:
  explicit NarrowCompute(std::int64_t most) : most_(most) {}
  std::vector<ComputeInterval> Intervals(const PricingConditions& /*conditions*/,
                                         const ShardSets& ranks,
                                         std::span<const ComputeCost> costs) const override {
    for (const ShardFeatures& shard : ranks.shards) {
      if (shard.cols > most_) return {};
    }
    EXPECT_EQ(ranks.sets.size(), costs.size());
    std::vector<ComputeInterval> intervals;
    for (const std::vector<int>& set : ranks.sets) {
      std::int64_t cols = 0;
      for (const int shard : set) cols += ranks.shards[static_cast<std::size_t>(shard)].cols;
      intervals.push_back(
          {.total = {static_cast<double>(cols), static_cast<double>(cols + most_)}});
    }
    return intervals;
  }

 private:
  const std::int64_t most_;
};

TEST(BoundCostModelTest, AKindIsAskedForIntervalsOfItsOwnShardsAlone) {
  PricingConditions conditions;
  conditions.num_ranks = 3;
  const auto model_of = [&](std::int64_t most) {
    return BoundCostModel(conditions, {}, {}, std::make_shared<NarrowCompute>(most),
                          std::make_shared<testing::FakeComm>(conditions));
  };
  const std::vector<BoundCostModel> kinds = {model_of(64), model_of(16)};
  const BoundCostModel model(kinds[0], kinds, {0, 1, 0});
  ShardSets ranks;
  for (const std::int64_t cols : {64, 16, 8}) {
    ranks.shards.emplace_back().cols = cols;
  }
  ranks.sets = {{0, 1}, {1, 2, 1}, {0}};
  const std::vector<ComputeCost> costs(3);
  const std::vector<int> kind_of_rank = {0, 1, 0};
  const auto intervals = model.ComputeIntervals(ranks, costs, kind_of_rank);
  ASSERT_EQ(intervals.size(), 3U);
  EXPECT_EQ(intervals[0].total, (CostInterval{80, 144}));
  EXPECT_EQ(intervals[1].total, (CostInterval{40, 56}));
  EXPECT_EQ(intervals[2].total, (CostInterval{64, 128}));
  ranks.sets[1].push_back(0);
  EXPECT_TRUE(model.ComputeIntervals(ranks, costs, kind_of_rank).empty());
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
