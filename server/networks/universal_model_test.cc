#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "common/base/random.h"
#include "server/cost/compute_features.h"
#include "server/networks/model_directory.h"
#include "server/networks/network_cost_model.h"
#include "server/networks/testing/universal_fixture.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

StatusOr<std::shared_ptr<const CostModel>> LoadFixture(const ModelFixture& fixture) {
  const fs::path root =
      fs::path(testing::TempDir()) /
      fmt::format("universal_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
  fs::remove_all(root);
  const fs::path directory = root / fixture.manifest.name / "1";
  NS_RETURN_IF_ERROR(WriteModelDirectory(directory, fixture.manifest, fixture.files));
  NS_ASSIGN_OR_RETURN(const ModelManifest manifest, ReadModelManifest(directory));
  return LoadCostModel(manifest, directory);
}

std::shared_ptr<const CostModel> Loaded(const UniversalFixtureOptions& options = {}) {
  auto model = LoadFixture(MakeUniversalFixture(options));
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

std::vector<ShardFeatures> RandomUniversalShards(std::size_t count, Random& random) {
  std::vector<ShardFeatures> shards(count);
  for (ShardFeatures& shard : shards) {
    shard.rows = shard.table_rows = random.Between(100, 40'000'000);
    shard.cols = 4 * random.Between(1, 32);
    shard.pooling_factor = 0.1 + 50 * random.UniformReal();
    for (double& bin : shard.reuse_histogram) bin = random.UniformReal() / 8.5;
    shard.weighted = random.Below(2) == 0;
  }
  return shards;
}

PricingConditions Batch(std::int64_t batch_size) {
  PricingConditions conditions;
  conditions.global_batch_size = batch_size;
  conditions.optimizer = Optimizer::kRowwiseAdagrad;
  return conditions;
}

std::vector<float> PhiOf(const CostModel& model, const PricingConditions& conditions,
                         const std::vector<ShardFeatures>& shards) {
  const BoundCostModel bound = model.Bind(conditions).value();
  std::vector<float> phi(shards.size() * static_cast<std::size_t>(bound.representation_width()));
  std::vector<CommLoad> loads(shards.size());
  bound.Represent(shards, phi, loads);
  return phi;
}

ComputeCost CostOf(const CostModel& model, const PricingConditions& conditions,
                   const std::vector<ShardFeatures>& shards) {
  return model.Bind(conditions)->CostsOfSets(ShardSets({shards})).front().compute;
}

// The document's formulas, once more and in doubles.
std::vector<double> NaiveCosts(const ModelFixture& fixture, const std::string& member,
                               const PricingConditions& conditions,
                               const std::vector<ShardFeatures>& shards) {
  const NetworkManifest& compute = fixture.manifest.compute;
  const TensorFile& file = fixture.files.at(compute.file);
  const auto values = [&](const std::string& name) { return file.tensors.at(name).values; };
  const auto linear = [&](const std::string& name, const std::vector<double>& x) {
    std::vector<double> y;
    const auto weight = values(name + ".weight");
    for (std::size_t o = 0; o * x.size() < weight.size(); ++o) {
      y.push_back(0);
      for (std::size_t k = 0; k < x.size(); ++k) y[o] += weight[o * x.size() + k] * x[k];
    }
    return y;
  };
  const auto add = [](std::vector<double> x, const std::vector<float>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    return x;
  };
  std::vector<double> sum(static_cast<std::size_t>(compute.layers.back()));
  for (const ShardFeatures& shard : shards) {
    std::vector<double> x(ComputeFeatureNames().size());
    ComputeFeaturesOf(conditions, shard, static_cast<double>(compute.cache_bytes), x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = (x[i] - values("feature_mean")[i]) / values("feature_std")[i];
    }
    for (std::size_t layer = 0; layer + 1 < compute.layers.size(); ++layer) {
      const std::string name = fmt::format("{}.table.{}", member, layer);
      x = add(linear(name, x), values(name + ".bias"));
      if (layer + 2 == compute.layers.size()) break;
      for (double& value : x) value = std::max(value, 0.0);
    }
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += std::exp(std::clamp(x[k], -20.0, 10.0));
  }
  std::vector<double> hidden =
      add(linear(member + ".hidden", sum), values(member + ".hidden.bias"));
  for (double& value : hidden) value = std::max(value, 0.0);
  const std::vector<double> output = linear(member + ".output", hidden);
  std::vector<double> cost = add(linear(member + ".linear", sum), values(member + ".linear.bias"));
  for (std::size_t o = 0; o < cost.size(); ++o) cost[o] += output[o];
  return cost;
}

// Of the members that price, those with the numbers 0 and 1.
std::vector<double> MeanOfNaive(const ModelFixture& fixture, const PricingConditions& conditions,
                                const std::vector<ShardFeatures>& shards) {
  std::vector<double> mean = NaiveCosts(fixture, "member.0", conditions, shards);
  const std::vector<double> second = NaiveCosts(fixture, "member.1", conditions, shards);
  for (std::size_t o = 0; o < mean.size(); ++o) mean[o] = (mean[o] + second[o]) / 2;
  return mean;
}

TEST(UniversalCostModelTest, ComputeIsTheDefinitionAtAnyConditions) {
  Random random(1);
  for (const std::vector<std::string>& outputs :
       {std::vector<std::string>{"total_ms"}, {"forward_ms", "backward_ms"}}) {
    const ModelFixture fixture = MakeUniversalFixture({.outputs = outputs});
    const auto model = *LoadFixture(fixture);
    for (const std::int64_t batch_size : {1, 1000, 1 << 20}) {
      const auto shards = RandomUniversalShards(5, random);
      const ComputeCost cost = CostOf(*model, Batch(batch_size), shards);
      const std::vector<double> expected = MeanOfNaive(fixture, Batch(batch_size), shards);
      if (outputs.size() == 1) {
        EXPECT_NEAR(cost.total_ms, expected[0], 1e-4 * expected[0]);
        EXPECT_FALSE(model->info().properties.splits_compute);
        continue;
      }
      EXPECT_NEAR(cost.forward_ms, expected[0], 1e-4 * expected[0]);
      EXPECT_NEAR(cost.backward_ms, expected[1], 1e-4 * expected[1]);
      EXPECT_EQ(cost.total_ms, cost.forward_ms + cost.backward_ms);
    }
  }
}

TEST(UniversalCostModelTest, ComputeIsConvexInTheSumAsItSays) {
  Random random(2);
  for (const std::uint64_t seed : {1, 2, 3}) {
    const auto model = Loaded({.seed = seed});
    ASSERT_TRUE(model->info().properties.convex_compute);
    const BoundCostModel bound = model->Bind({}).value();
    const std::size_t width = static_cast<std::size_t>(bound.representation_width());
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<float> sums(3 * width);  // a, b and their middle
      for (std::size_t k = 0; k < width; ++k) {
        sums[k] = static_cast<float>(std::exp(10 * random.UniformReal() - 5));
        sums[width + k] = static_cast<float>(std::exp(10 * random.UniformReal() - 5));
        sums[2 * width + k] = (sums[k] + sums[width + k]) / 2;
      }
      std::vector<ComputeCost> cost(3);
      bound.ComputeCosts(sums, cost);
      const float mean_ms = (cost[0].total_ms + cost[1].total_ms) / 2;
      EXPECT_LE(cost[2].total_ms, mean_ms * (1 + 1e-5F));
      EXPECT_GE(cost[2].total_ms, 0);
    }
  }
}

TEST(UniversalCostModelTest, AShardWithoutRowsAddsNothingAndMoreShardsNeverHelp) {
  const auto model = Loaded();
  Random random(3);
  auto shards = RandomUniversalShards(2, random);
  shards[1].rows = 0;
  shards[1].layout.type = ShardingType::kRowWise;
  const std::vector<float> phi = PhiOf(*model, Batch(512), shards);
  const auto half = static_cast<std::ptrdiff_t>(phi.size() / 2);
  EXPECT_TRUE(std::all_of(phi.begin(), phi.begin() + half, [](float x) { return x > 0; }));
  EXPECT_TRUE(std::all_of(phi.begin() + half, phi.end(), [](float x) { return x == 0; }));
}

TEST(UniversalCostModelTest, InfoSaysWhatTheManifestSays) {
  const auto model = Loaded();
  const CostModelInfo& info = model->info();
  EXPECT_EQ(info.kind, "universal");
  EXPECT_EQ(info.coverage.max_ranks, 16384);
  EXPECT_EQ(info.properties.interval_coverage, 0.9);
  EXPECT_EQ(info.coverage.ranges,
            (ConditionRanges{1024, 65536, {"fp32"}, {"sgd", "rowwise_adagrad"}, 2, 8, 2, {"sum"}}));
  EXPECT_THAT(info.coverage.measured_types, testing::Contains(ShardingType::kRowWiseSubset));
  EXPECT_NEAR(info.typical_errors.at("forward_comm"), std::exp(2 * 0.1) - 1, 1e-12);
  EXPECT_NEAR(info.typical_errors.at("backward_comm"), std::exp(1.5 * 0.05) - 1, 1e-12);
  EXPECT_EQ(Loaded({.has_intervals = false})->info().properties.interval_coverage, 0);

  ModelFixture fixture = MakeUniversalFixture({});
  fixture.manifest.input_dist =
      InputDistManifest{{{{2, 0.5, 1, 2, 3}}, 1}, fixture.manifest.compute.interval};
  const auto with_ids = LoadFixture(fixture).value();
  const ModelProperties& properties = with_ids->info().properties;
  EXPECT_EQ(properties.measured_input_dist, fixture.manifest.input_dist->measured);
  EXPECT_EQ(properties.input_dist_interval, fixture.manifest.input_dist->interval);
}

TEST(UniversalCostModelTest, TriesWhatWasMeasuredUnaskedWhereItWasMeasured) {
  const auto types_at = [](const CostModel& model, int num_ranks, std::vector<HostRanks> hosts) {
    PricingConditions conditions = Batch(4096);
    conditions.num_ranks = num_ranks;
    conditions.hosts = std::move(hosts);
    return model.Bind(conditions)->sharding_types();
  };
  const std::vector<ShardingType> columns = {ShardingType::kTableWise, ShardingType::kColumnWise};
  const auto model = Loaded();  // 2 to 8 ranks, 2 hosts
  const std::vector<ShardingType> all = model->info().coverage.sharding_types;
  EXPECT_THAT(all,
              testing::UnorderedElementsAre(ShardingType::kTableWise, ShardingType::kColumnWise,
                                            ShardingType::kTableColumnWise, ShardingType::kRowWise,
                                            ShardingType::kTableRowWise, ShardingType::kGridShard,
                                            ShardingType::kDataParallel));
  EXPECT_EQ(types_at(*model, 8, {{0, 4}, {4, 4}}), all);
  EXPECT_EQ(types_at(*model, 9, {}), columns);
  EXPECT_EQ(types_at(*model, 3, {{0, 1}, {1, 1}, {2, 1}}), columns);
  const auto exchanges =
      Loaded({.collectives = {"all_to_all_forward", "all_to_all_backward", "all_reduce"}});
  EXPECT_THAT(
      types_at(*exchanges, 8, {}),
      testing::UnorderedElementsAre(ShardingType::kTableWise, ShardingType::kColumnWise,
                                    ShardingType::kTableColumnWise, ShardingType::kDataParallel));
  EXPECT_EQ(Loaded({.has_comm = false})->info().coverage.sharding_types, columns);
}

TEST(UniversalCostModelTest, WithoutCommunicationItPricesOneRank) {
  const auto model = Loaded({.has_comm = false});
  EXPECT_EQ(model->Bind({.num_ranks = 2}).status().code(), absl::StatusCode::kFailedPrecondition);
  const BoundCostModel bound = model->Bind({.num_ranks = 1}).value();
  float cost_ms = 1;
  const float load = 100;
  bound.comm().BackwardCosts({&load, 1}, {&cost_ms, 1});
  EXPECT_EQ(cost_ms, 0);
  EXPECT_EQ(bound.comm().Intervals(std::vector<RankComm>(1))[0].forward, CostInterval{});
}

TEST(UniversalCostModelTest, AFabricPricesTheCommunicationOfEitherKind) {
  for (ModelFixture fixture :
       {MakeUniversalFixture({.has_comm = false}), MakeModelFixture({.device_counts = {}})}) {
    fixture.manifest.fabric = Fabric{"h100-nvlink4_ndr", {5, 3.6e11}, {12, 4.8e10}};
    const auto model = LoadFixture(fixture);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->info().coverage.comm_fabric, "h100-nvlink4_ndr");
    EXPECT_EQ((*model)->info().typical_errors.count("forward_comm"), 0U);
    PricingConditions conditions = Batch(65536);
    conditions.num_ranks = 2;
    const StatusOr<BoundCostModel> bound = (*model)->Bind(conditions);
    ASSERT_TRUE(bound.ok()) << bound.status();
    std::vector<float> cost_ms(2);
    bound->comm().BackwardCosts(std::vector<float>{1000, 10}, cost_ms);
    EXPECT_NEAR(cost_ms[0], 0.005 + 1000 * 65536 * 4 / 2 / 3.6e8, 1e-5);
    EXPECT_TRUE(bound->comm().Intervals(std::vector<RankComm>(2)).empty());
  }
}

TEST(UniversalCostModelTest, ABoundModelOutlivesTheOneItWasBoundFrom) {
  PricingConditions conditions = Batch(4096);
  conditions.num_ranks = 4;
  const BoundCostModel bound = Loaded()->Bind(conditions).value();
  const std::vector<float> loads = {1, 20, 300, 4000};
  const std::vector<float> offsets_ms = {0, 1, 0, 2};
  std::vector<float> cost_ms(4);
  bound.comm().ForwardCosts(loads, offsets_ms, cost_ms);
  for (const float cost : cost_ms) EXPECT_GT(cost, 0);
  Random random(4);
  const std::vector<std::vector<ShardFeatures>> set = {RandomUniversalShards(3, random)};
  EXPECT_GT(bound.CostsOfSets(set).front().compute.total_ms, 0);
}

TEST(UniversalCostModelTest, IntervalsHoldTheCostAndKeepItsParts) {
  const auto model = Loaded();
  Random random(5);
  std::vector<std::vector<ShardFeatures>> ranks;
  std::vector<ComputeCost> costs;
  for (const std::size_t count : {1, 4, 9}) {
    ranks.push_back(RandomUniversalShards(count, random));
    costs.push_back(CostOf(*model, Batch(2048), ranks.back()));
  }
  const BoundCostModel bound = model->Bind(Batch(2048)).value();
  const auto intervals = bound.ComputeIntervals(ranks, costs);
  ASSERT_EQ(intervals.size(), 3u);
  const auto of_one = Loaded({.members = 1})->Bind(Batch(2048))->ComputeIntervals(ranks, costs);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_LT(intervals[r].total.low_ms, costs[r].total_ms);
    EXPECT_GT(intervals[r].total.high_ms, of_one[r].total.high_ms);
    EXPECT_NEAR(intervals[r].forward->high_ms + intervals[r].backward->high_ms,
                intervals[r].total.high_ms, 1e-4 * intervals[r].total.high_ms);
  }
  // Each rank by itself says the same.
  EXPECT_NEAR(bound.ComputeIntervals(ShardSets({ranks[1]}), std::span(costs).subspan(1, 1))[0]
                  .total.high_ms,
              intervals[1].total.high_ms, 1e-4 * intervals[1].total.high_ms);
}

TEST(UniversalCostModelTest, FilesThatAreNotWhatTheManifestSaysAreRefused) {
  const auto refusal = [](const std::string& file, const std::string& tensor, float value) {
    ModelFixture fixture = MakeUniversalFixture({});
    const ModelManifest manifest = fixture.manifest;
    const fs::path directory = fs::path(testing::TempDir()) / "universal_bad" / manifest.name / "1";
    fs::remove_all(directory);
    EXPECT_TRUE(WriteModelDirectory(directory, manifest, fixture.files).ok());
    fixture.files.at(file).tensors.at(tensor).values[0] = value;
    EXPECT_TRUE(WriteTensorFile(directory / file, fixture.files.at(file)).ok());
    return std::string(Message(LoadCostModel(manifest, directory).status()));
  };
  for (const char* tensor :
       {"member.1.output.weight", "member.0.linear.weight", "member.2.linear.bias"}) {
    EXPECT_THAT(refusal("compute.safetensors", tensor, -1e-3F),
                AllOf(HasSubstr(tensor), HasSubstr("must not be negative")));
  }
  for (const char* tensor : {"member.0.layer.0.weight", "member.0.layer.1.weight",
                             "member.0.wait_scale", "member.2.floor_ms"}) {
    EXPECT_THAT(refusal("comm.safetensors", tensor, -1e-3F),
                AllOf(HasSubstr(tensor), HasSubstr("must not be negative")));
  }
  EXPECT_THAT(refusal("compute.safetensors", "member.0.table.0.weight", INFINITY),
              HasSubstr("member.0.table.0.weight"));
  EXPECT_EQ(refusal("compute.safetensors", "member.0.hidden.weight", -5), "");
}

}  // namespace
}  // namespace neuroshard
