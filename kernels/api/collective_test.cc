#include "kernels/api/collective.h"

#include <gtest/gtest.h>

#include "kernels/api/testing/bus_bytes.h"

namespace neuroshard {
namespace {

// The formulas of nccl-tests' PERFORMANCE.md, written down for four ranks: S is its buffer's size.
TEST(BusBytesTest, AreThoseOfNcclTests) {
  constexpr std::int64_t kBlock = 1000, kS = 4 * kBlock;
  const auto blocks = [](Collective collective) {
    return BusBytes(collective,
                    BytesOf({.collective = collective, .block_bytes = kBlock}, 0, 4).value(), 4);
  };
  EXPECT_DOUBLE_EQ(blocks(Collective::kAllReduce), kS * 2 * 3 / 4.0);
  EXPECT_DOUBLE_EQ(blocks(Collective::kReduceScatter), kS * 3 / 4.0);
  EXPECT_DOUBLE_EQ(blocks(Collective::kAllGather), kS * 3 / 4.0);
  const Exchange uneven = {{10, 20, 30, 40}, {10, 80, 80, 80}};  // alltoallv: the larger side
  EXPECT_DOUBLE_EQ(BusBytes(Collective::kAllToAll, BytesOf(uneven, 0, 4).value(), 4),
                   250 * 3 / 4.0);
  EXPECT_EQ(BusBytes(Collective::kAllReduce, {8, 8}, 1), 0) << "nothing travels";
}

}  // namespace
}  // namespace neuroshard
