#include "server/search/neuroshard/fused_cost_memo.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "common/base/stop_signal.h"
#include "tests/support/concave_cost_model.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::ConcaveCostModel;

constexpr std::size_t kWidth = ConcaveCostModel::kWidth;

class FusedCostMemoTest : public ::testing::Test {
 protected:
  float Head(const std::vector<float>& sum) const {
    ComputeCost cost;
    model_.ComputeCosts(sum, std::span(&cost, 1));
    return cost.total_ms;
  }

  PlanRequest request_;
  ConcaveCostModel model_;
  NeverStop stop_;
  SearchContext context_{request_, model_, stop_, nullptr};
};

TEST_F(FusedCostMemoTest, PredictsEachContentOnce) {
  FusedCostMemo memo(context_, kWidth);
  const std::vector<float> one(kWidth, 1.0F);
  const std::vector<float> three(kWidth, 3.0F);
  const ContentHash a = AddToContent(kNoContent, 0);
  const ContentHash ab = AddToContent(a, 1);

  const auto first = memo.Find(a, one.data());
  const auto again = memo.Find(a, one.data());
  const auto sum = memo.Find(ab, three.data());
  memo.EvaluateQueued();
  const auto later = memo.Find(ab, three.data());
  memo.EvaluateQueued();

  EXPECT_EQ(first, again);
  EXPECT_EQ(sum, later);
  EXPECT_EQ(memo.cost_ms(first), Head(one));
  EXPECT_EQ(memo.cost_ms(sum), Head(three));
  EXPECT_EQ(context_.statistics().compute_evaluations, 2);
}

TEST_F(FusedCostMemoTest, GrowsAndForgets) {
  FusedCostMemo memo(context_, kWidth);
  std::vector<FusedCostMemo::Slot> slots;
  const auto sum_of = [](int i) {
    return std::vector<float>(kWidth, static_cast<float>(i % 1000));
  };
  constexpr int kContents = (1 << 19) + 5;
  ContentHash content = kNoContent;
  std::vector<ContentHash> contents;
  for (int i = 0; i < kContents; ++i) {
    content = AddToContent(content, i);
    contents.push_back(content);
    slots.push_back(memo.Find(content, sum_of(i).data()));
    if (i % 1000 == 0) memo.EvaluateQueued();
  }
  memo.EvaluateQueued();
  for (int i = 0; i < kContents; i += 997) {
    const std::size_t at = static_cast<std::size_t>(i);
    ASSERT_EQ(memo.Find(contents[at], nullptr), slots[at]);
    ASSERT_EQ(memo.cost_ms(slots[at]), Head(sum_of(i)));
  }
  memo.TrimIfLarge();
  const auto evaluated = context_.statistics().compute_evaluations;
  const auto slot = memo.Find(contents[7], sum_of(7).data());
  memo.EvaluateQueued();
  EXPECT_EQ(memo.cost_ms(slot), Head(sum_of(7)));
  EXPECT_EQ(context_.statistics().compute_evaluations, evaluated + 1);
}

TEST_F(FusedCostMemoTest, ContentsDifferByOrderAndMultiplicity) {
  std::set<ContentHash> hashes;
  for (int a = 0; a < 50; ++a) {
    hashes.insert(AddToContent(kNoContent, a));
    for (int b = 0; b < 50; ++b) {
      hashes.insert(AddToContent(AddToContent(kNoContent, a), b));
    }
  }
  EXPECT_EQ(hashes.size(), 50U * 51U);
  EXPECT_FALSE(hashes.contains(kNoContent));
}

}  // namespace
}  // namespace neuroshard
