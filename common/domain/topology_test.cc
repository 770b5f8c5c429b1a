#include "common/domain/topology.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(TopologyTest, RanksPerHost) {
  EXPECT_EQ((Topology{{{0, 1}, {0, 1}, {1, 1}, {1, 1}}}).ranks_per_host(), 2);
  EXPECT_EQ((Topology{{{0, 1}, {0, 1}, {1, 1}}}).ranks_per_host(), 0);
  EXPECT_EQ(Topology{}.ranks_per_host(), 0);
}

}  // namespace
}  // namespace neuroshard
