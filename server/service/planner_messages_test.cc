#include "server/service/planner_messages.h"

#include <gmock/gmock.h>

#include "server/cost/cost_model.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

TEST(PlannerMessagesTest, AModelSaysAllConditionsThatItWasMeasuredAt) {
  CostModelInfo info;
  EXPECT_FALSE(EncodeModel(info, false, 1).has_measured_ranges());
  info.coverage.ranges = {
      64, 4096, {"fp32", "fp16"}, {"sgd"}, 2, 8, 3, {"sum"}, {"fused", "fused_uvm_caching"}};
  const v1::MeasuredRanges ranges = EncodeModel(info, false, 1).measured_ranges();
  EXPECT_EQ(ranges.min_batch_size(), 64);
  EXPECT_EQ(ranges.max_batch_size(), 4096);
  EXPECT_THAT(ranges.weight_dtypes(), ElementsAre("fp32", "fp16"));
  EXPECT_THAT(ranges.optimizers(), ElementsAre("sgd"));
  EXPECT_EQ(ranges.min_ranks(), 2);
  EXPECT_EQ(ranges.max_ranks(), 8);
  EXPECT_EQ(ranges.max_hosts(), 3);
  EXPECT_THAT(ranges.pooling_modes(), ElementsAre("sum"));
  EXPECT_THAT(ranges.compute_kernels(), ElementsAre("fused", "fused_uvm_caching"));
}

}  // namespace
}  // namespace neuroshard
