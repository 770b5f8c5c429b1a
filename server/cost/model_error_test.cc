#include "server/cost/model_error.h"

#include <gmock/gmock.h>

namespace neuroshard {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ModelErrorTest, AModelIsPoorByItsErrorOrForWantOfSamples) {
  EXPECT_THAT(PoorReason(10, 100), IsEmpty());
  EXPECT_THAT(PoorReason(kPoorMapePercent, kTellingSamples), IsEmpty());
  EXPECT_THAT(PoorReason(214, 100), HasSubstr("214% off on 100 held-out samples"));
  EXPECT_THAT(PoorReason(10, 2), HasSubstr("held against 2 samples"));
}

TEST(ModelErrorTest, AManifestSaysItOrNot) {
  CostModelInfo model;
  EXPECT_THAT(PoorReason(model), IsEmpty());
  model.details = {{"metrics.compute.mape_percent", "214.5"}, {"metrics.compute.samples", "12"}};
  EXPECT_THAT(PoorReason(model), HasSubstr("214% off on 12"));
  model.details["metrics.compute.mape_percent"] = "8.1";
  EXPECT_THAT(PoorReason(model), IsEmpty());
  model.details["metrics.compute.samples"] = "many";
  EXPECT_THAT(PoorReason(model), IsEmpty());
}

TEST(ModelErrorTest, DriftIsWhatIsFurtherOffThanUsual) {
  CostModelInfo model;
  model.typical_errors["compute"] = 0.1;
  const auto drifted = [&](const char* stage, double ratio) {
    StageDrift drift;
    drift.stage = stage;
    drift.median_ratio = ratio;
    return HasDrifted(model, drift);
  };
  EXPECT_FALSE(drifted("compute", 1.09));
  EXPECT_TRUE(drifted("compute", 1.11));
  EXPECT_FALSE(drifted("compute", 0.92));
  EXPECT_TRUE(drifted("compute", 0.9));
  EXPECT_FALSE(drifted("all_reduce", 1.24));
  EXPECT_TRUE(drifted("all_reduce", 0.79));
}

}  // namespace
}  // namespace neuroshard
