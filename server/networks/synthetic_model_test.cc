// What tests/support/make_synthetic_model.py writes is a model of ours that computes what the
// script promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/base/random.h"
#include "server/networks/network_cost_model.h"
#include "server/networks/testing/model_fixture.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

constexpr double kMsPerDim = 0.01;
constexpr double kLatencyMs = 0.05;

class SyntheticModelTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(testing::TempDir()) /
        fmt::format("synthetic_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
  }

  static int Run(const std::string& arguments) {
    const std::string command = fmt::format("python3 {}/tests/support/make_synthetic_model.py {}",
                                            NEUROSHARD_SOURCE_DIR, arguments);
    return std::system(command.c_str());
  }

  static std::shared_ptr<const CostModel> Load(const fs::path& directory) {
    const auto manifest = ReadModelManifest(directory);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    const auto model = LoadCostModel(*manifest, directory);
    EXPECT_TRUE(model.ok()) << model.status();
    return *model;
  }

  static double ComputeMs(const CostModel& model, const std::vector<ShardFeatures>& shards) {
    return model.Bind({})->CostsOfSets(ShardSets({shards})).front().compute.total_ms;
  }

  fs::path root_;
};

TEST_F(SyntheticModelTest, CommunicationIsExactForAnyDeviceCount) {
  const fs::path directory = root_ / "made" / "3";
  ASSERT_EQ(Run(fmt::format("--out {} --devices 2,3,5,8", directory.string())), 0);
  const auto model = Load(directory);
  EXPECT_THAT(model->info().coverage.num_devices, testing::ElementsAre(2, 3, 5, 8));
  Random random(3);
  for (const int ranks : model->info().coverage.num_devices) {
    const auto count = static_cast<std::size_t>(ranks);
    std::vector<float> dims(count);
    std::vector<float> offsets_ms(count);
    for (float& dim : dims) dim = static_cast<float>(random.Between(0, 2000));
    for (float& offset : offsets_ms) offset = static_cast<float>(random.Between(0, 20));
    std::vector<float> backward_ms(count);
    std::vector<float> forward_ms(count);
    const BoundCostModel bound = model->Bind({.num_ranks = ranks}).value();
    bound.comm().BackwardCosts(dims, backward_ms);
    bound.comm().ForwardCosts(dims, offsets_ms, forward_ms);
    const float largest = *std::max_element(dims.begin(), dims.end());
    const float last_ms = *std::max_element(offsets_ms.begin(), offsets_ms.end());
    for (std::size_t r = 0; r < count; ++r) {
      const double volume_ms = kLatencyMs + kMsPerDim * (0.25 * dims[r] + 0.75 * largest);
      EXPECT_NEAR(backward_ms[r], volume_ms, 1e-3);
      EXPECT_NEAR(forward_ms[r], volume_ms + last_ms - offsets_ms[r], 1e-3);
    }
  }
}

TEST_F(SyntheticModelTest, ComputeGrowsAsLookupsDo) {
  const fs::path directory = root_ / "made" / "1";
  ASSERT_EQ(Run(fmt::format("--out {} --devices 4 --split", directory.string())), 0);
  const auto model = Load(directory);
  EXPECT_TRUE(model->info().properties.splits_compute);
  ShardFeatures small;
  small.rows = 100'000;
  small.cols = 32;
  small.pooling_factor = 5;
  ShardFeatures wide = small;
  wide.cols = 128;
  ShardFeatures busy = wide;
  busy.pooling_factor = 50;
  EXPECT_LT(ComputeMs(*model, {small}), ComputeMs(*model, {wide}));
  EXPECT_LT(ComputeMs(*model, {wide}), ComputeMs(*model, {busy}));
  EXPECT_LT(ComputeMs(*model, {small, busy}),
            ComputeMs(*model, {small}) + ComputeMs(*model, {busy}));
  // 0.1 overhead + 0.05 a table + 0.2 dim/128 + 3 x y, at knots of the pieces: x = y = 1.
  EXPECT_NEAR(ComputeMs(*model, {busy}), 0.1 + 0.05 + 0.2 + 3.0, 1e-3);
}

TEST_F(SyntheticModelTest, TakesTheComputeNetworkOfARealModel) {
  const auto base = WriteModelFixture(root_, {.name = "real", .device_counts = {2}});
  ASSERT_TRUE(base.ok()) << base.status();
  const fs::path directory = root_ / "mixed" / "1";
  ASSERT_EQ(Run(fmt::format("--out {} --devices 4 --base {}", directory.string(), base->string())),
            0);
  const auto real = Load(*base);
  const auto mixed = Load(directory);
  EXPECT_THAT(mixed->info().coverage.num_devices, testing::ElementsAre(4));
  EXPECT_EQ(mixed->info().measured_with.device, real->info().measured_with.device);
  EXPECT_EQ(mixed->info().measured_with.backend, real->info().measured_with.backend);
  EXPECT_EQ(mixed->info().measured_with.collective_backend, "");  // its communication is made up
  ShardFeatures shard;
  shard.rows = 5000;
  shard.cols = 64;
  EXPECT_EQ(ComputeMs(*mixed, {shard}), ComputeMs(*real, {shard}));
}

TEST_F(SyntheticModelTest, RefusesBadArguments) {
  fs::create_directories(root_ / "a" / "1");
  EXPECT_NE(Run(fmt::format("--out {} 2>/dev/null", (root_ / "a" / "1").string())), 0);
  EXPECT_NE(Run(fmt::format("--out {} 2>/dev/null", (root_ / "a" / "x").string())), 0);
  EXPECT_NE(Run(fmt::format("--out {} --devices 1 2>/dev/null", (root_ / "a" / "2").string())), 0);
  EXPECT_NE(Run(fmt::format("--out {} --base /nowhere 2>/dev/null", (root_ / "a" / "2").string())),
            0);
  EXPECT_TRUE(fs::is_empty(root_ / "a" / "1"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "a"), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace neuroshard
