// The models under configs/models: what the planner serves at its first start.
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "server/networks/model_manifest.h"
#include "server/networks/network_cost_model.h"

namespace neuroshard {
namespace {

TEST(ShippedModelsTest, EveryOneLoadsAndPricesALookup) {
  const std::filesystem::path root =
      std::filesystem::path(NEUROSHARD_SOURCE_DIR) / "configs" / "models";
  int models = 0;
  for (const auto& name : std::filesystem::directory_iterator(root)) {
    for (const auto& version : std::filesystem::directory_iterator(name)) {
      if (!version.is_directory()) continue;  // its channel
      SCOPED_TRACE(version.path());
      if (!version.is_directory()) continue;  // channel.yaml
      ++models;
      const auto manifest = ReadModelManifest(version);
      ASSERT_TRUE(manifest.ok()) << manifest.status();
      const auto model = LoadCostModel(*manifest, version);
      ASSERT_TRUE(model.ok()) << model.status();
      ShardFeatures shard;
      shard.rows = 100'000;
      shard.cols = 64;
      shard.pooling_factor = 10;
      shard.reuse_histogram = DefaultReuseHistogram();
      const std::vector<std::vector<ShardFeatures>> set = {{shard}};
      for (const int ranks : {1, 2, 4, 8}) {
        const StatusOr<BoundCostModel> bound = (*model)->Bind({.num_ranks = ranks});
        ASSERT_TRUE(bound.ok()) << bound.status();
        EXPECT_GT(bound->CostsOfSets(set).front().compute.total_ms, 0);
      }
    }
  }
  EXPECT_GE(models, 1);
}

}  // namespace
}  // namespace neuroshard
