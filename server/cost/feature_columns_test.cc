#include "server/cost/feature_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ShardFeatures Shard() {
  ShardFeatures shard;
  shard.rows = 1000;
  shard.cols = 64;
  shard.pooling_factor = 2.5;
  for (int bin = 0; bin < kReuseBins; ++bin) {
    shard.reuse_histogram[static_cast<std::size_t>(bin)] = 0.01 * bin;
  }
  return shard;
}

TEST(FeatureColumnsTest, NeuroShardsOrderIsTheOneOfItsRelease) {
  EXPECT_THAT(NeuroShardFeatureNames(),
              ElementsAre("bin_0", "bin_1", "bin_10", "bin_11", "bin_12", "bin_13", "bin_14",
                          "bin_15", "bin_16", "bin_2", "bin_3", "bin_4", "bin_5", "bin_6", "bin_7",
                          "bin_8", "bin_9", "dim", "pooling_factor", "row"));
}

TEST(FeatureColumnsTest, NamesAndNumbersAgree) {
  for (int feature = 0; feature < kNumShardFeatures; ++feature) {
    EXPECT_EQ(ShardFeatureFromName(ShardFeatureName(feature)), feature);
  }
  EXPECT_EQ(ShardFeatureFromName("bin_17"), std::nullopt);
  EXPECT_EQ(ShardFeatureFromName(""), std::nullopt);
}

TEST(FeatureColumnsTest, FillsColumnsInTheListedOrderWithTheirTransforms) {
  const auto columns =
      FeatureColumns::Create({"row", "bin_3", "dim", "pooling_factor"}, {{"row", "log1p"}});
  ASSERT_TRUE(columns.ok()) << columns.status();

  std::vector<double> values(4);
  columns->Fill(Shard(), values);

  EXPECT_THAT(values, ElementsAre(std::log1p(1000.0), 0.03, 64.0, 2.5));
}

TEST(FeatureColumnsTest, RefusesWhatIsNotAColumn) {
  const auto refusal = [](const std::vector<std::string>& names,
                          const std::map<std::string, std::string>& transforms) {
    return Message(FeatureColumns::Create(names, transforms).status());
  };
  EXPECT_THAT(refusal({}, {}), HasSubstr("no features"));
  EXPECT_THAT(refusal({"dims"}, {}), HasSubstr("unknown feature 'dims'"));
  EXPECT_THAT(refusal({"dim", "row", "dim"}, {}), HasSubstr("'dim' is listed twice"));
  EXPECT_THAT(refusal({"dim"}, {{"row", "log1p"}}), HasSubstr("'row', which is not listed"));
  EXPECT_THAT(refusal({"dim"}, {{"dim", "sqrt"}}), HasSubstr("unknown transform 'sqrt'"));
}

}  // namespace
}  // namespace neuroshard
