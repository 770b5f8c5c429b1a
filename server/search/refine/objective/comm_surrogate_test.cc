#include <gtest/gtest.h>

#include "server/search/refine/objective/objective.h"
#include "tests/support/concave_cost_model.h"

namespace neuroshard {
namespace {

// Its communication is linear: what is fitted is what it is.
TEST(CommSurrogateTest, FindsTheSlopesOfALinearModel) {
  for (const int ranks : {2, 4, 16}) {
    const CommSurrogate surrogate =
        ProbeComm(testing::BoundToRanks(ranks, testing::ConcaveCostModel()), 300, 200);
    EXPECT_NEAR(surrogate.backward_own, 0.002, 1e-6);
    EXPECT_NEAR(surrogate.backward_largest, 0.001, 1e-6);
    EXPECT_NEAR(surrogate.forward_own, 0.003, 1e-6);
    EXPECT_NEAR(surrogate.forward_largest, 0, 1e-6);
    EXPECT_NEAR(surrogate.forward_wait, 0.8, 1e-5);
  }
}

TEST(CommSurrogateTest, NoLoadAndOneRankAreFine) {
  for (const int ranks : {1, 3}) {
    const CommSurrogate surrogate =
        ProbeComm(testing::BoundToRanks(ranks, testing::ConcaveCostModel()), 0, 0);
    EXPECT_GE(surrogate.forward_own, 0);
    EXPECT_GE(surrogate.backward_own, 0);
    EXPECT_GE(surrogate.forward_wait, 0);
    EXPECT_LE(surrogate.forward_wait, 1);
  }
}

}  // namespace
}  // namespace neuroshard
