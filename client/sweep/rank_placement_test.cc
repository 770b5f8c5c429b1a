#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/sweep/comm_group.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

TEST(PlaceRanksTest, NeighboursAreInDifferentWorkers) {
  EXPECT_THAT(PlaceRanks({{0, 1}, {0, 1}}, 4),
              Optional(ElementsAre(RankPlacement{0, 0}, RankPlacement{1, 0}, RankPlacement{0, 1},
                                   RankPlacement{1, 1})));
}

TEST(PlaceRanksTest, UnevenWorkersAreUsedUp) {
  EXPECT_THAT(PlaceRanks({{5}, {}, {2, 7}}, 3),
              Optional(ElementsAre(RankPlacement{0, 5}, RankPlacement{2, 2}, RankPlacement{2, 7})));
}

TEST(PlaceRanksTest, TooFewDevicesAreNoPlacement) {
  EXPECT_EQ(PlaceRanks({{0}, {0}}, 3), std::nullopt);
  EXPECT_EQ(PlaceRanks({}, 1), std::nullopt);
}

TEST(PlaceRanksTest, FewerRanksThanDevicesUseTheFirstOfEachWorker) {
  EXPECT_THAT(PlaceRanks({{0, 1}, {0, 1}}, 2),
              Optional(ElementsAre(RankPlacement{0, 0}, RankPlacement{1, 0})));
}

}  // namespace
}  // namespace neuroshard
