#include "server/search/core/rank_cost_cache.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <vector>

#include "common/base/stop_signal.h"
#include "tests/support/concave_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::ConcaveCostModel;

constexpr std::size_t kWidth = testing::ConcaveCompute::kWidth;
constexpr std::size_t kMaxContents = 1U << 18;

class RankCostCacheTest : public ::testing::Test {
 protected:
  float Head(const std::vector<float>& sum) const {
    ComputeCost cost;
    model_.ComputeCosts(sum, std::span(&cost, 1));
    return cost.total_ms;
  }
  RankCostCache::Slot Find(RankContent content, const std::vector<float>& sum) {
    return cache_.Find(content, 0, [&](std::span<float> row) {
      ASSERT_EQ(row.size(), sum.size());
      std::copy(sum.begin(), sum.end(), row.begin());
    });
  }

  PlanRequest request_;
  BoundCostModel model_ = testing::BoundToRanks(1, ConcaveCostModel());
  NeverStop stop_;
  SearchContext context_{request_, model_, stop_, nullptr};
  RankCostCache cache_{context_, kWidth, kMaxContents};
};

TEST_F(RankCostCacheTest, PredictsEachContentOnce) {
  const std::vector<float> one(kWidth, 1.0F);
  const std::vector<float> three(kWidth, 3.0F);
  const RankContent a = AddToContent(kNoContent, 0);
  const RankContent ab = AddToContent(a, 1);

  const auto first = Find(a, one);
  const auto again = Find(a, one);
  const auto sum = Find(ab, three);
  cache_.EvaluateQueued();
  const auto later = Find(ab, three);
  cache_.EvaluateQueued();

  EXPECT_EQ(first, again);
  EXPECT_EQ(sum, later);
  EXPECT_EQ(cache_.cost_ms(first), Head(one));
  EXPECT_EQ(cache_.cost_ms(sum), Head(three));
  EXPECT_EQ(cache_.cost_ms(RankCostCache::kEmptyRank), 0);
  EXPECT_EQ(context_.statistics().compute_evaluations, 2);
}

TEST_F(RankCostCacheTest, GrowsAndForgets) {
  std::vector<RankCostCache::Slot> slots;
  const auto sum_of = [](int i) {
    return std::vector<float>(kWidth, static_cast<float>(i % 1000));
  };
  constexpr int kContents = static_cast<int>(kMaxContents) + 5;
  RankContent content = kNoContent;
  std::vector<RankContent> contents;
  for (int i = 0; i < kContents; ++i) {
    if (i == static_cast<int>(kMaxContents) - 1) cache_.TrimIfLarge();  // not yet
    content = AddToContent(content, i);
    contents.push_back(content);
    slots.push_back(Find(content, sum_of(i)));
    if (i % 1000 == 0 || i == static_cast<int>(kMaxContents) - 2) cache_.EvaluateQueued();
  }
  cache_.EvaluateQueued();
  for (int i = 0; i < kContents; i += 997) {
    const std::size_t at = static_cast<std::size_t>(i);
    ASSERT_EQ(Find(contents[at], {}), slots[at]);
    ASSERT_EQ(cache_.cost_ms(slots[at]), Head(sum_of(i)));
  }
  cache_.TrimIfLarge();
  const auto evaluated = context_.statistics().compute_evaluations;
  const auto slot = Find(contents[7], sum_of(7));
  cache_.EvaluateQueued();
  EXPECT_EQ(cache_.cost_ms(slot), Head(sum_of(7)));
  EXPECT_EQ(context_.statistics().compute_evaluations, evaluated + 1);
}

TEST_F(RankCostCacheTest, KnownCostsAreNotPredicted) {
  const auto known = cache_.AddKnown(7.5F);
  const auto slot = Find(ContentOf(3), std::vector<float>(kWidth, 2.0F));
  cache_.EvaluateQueued();
  EXPECT_EQ(cache_.cost_ms(known), 7.5F);
  EXPECT_EQ(cache_.cost_ms(slot), Head(std::vector<float>(kWidth, 2.0F)));
  EXPECT_EQ(context_.statistics().compute_evaluations, 1);
}

TEST(RankContentTest, OrderedContentsDifferByOrderAndMultiplicity) {
  std::set<RankContent> contents;
  for (int a = 0; a < 50; ++a) {
    contents.insert(AddToContent(kNoContent, a));
    for (int b = 0; b < 50; ++b) contents.insert(AddToContent(AddToContent(kNoContent, a), b));
  }
  EXPECT_EQ(contents.size(), 50U * 51U);
  EXPECT_FALSE(contents.contains(kNoContent));
}

TEST(RankContentTest, SumsOfContentsDifferByMultiplicityAlone) {
  std::set<RankContent> contents;
  for (int a = 0; a < 50; ++a) {
    contents.insert(ContentOf(a));
    for (int b = 0; b <= a; ++b) contents.insert(ContentOf(a) + ContentOf(b));
  }
  EXPECT_EQ(contents.size(), 50U + 50U * 51U / 2);
  EXPECT_FALSE(contents.contains(kNoContent));
}

}  // namespace
}  // namespace neuroshard
