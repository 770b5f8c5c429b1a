#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <thread>

#include "common/base/random.h"
#include "server/cost/feature_columns.h"
#include "server/networks/model_directory.h"
#include "server/networks/network_cost_model.h"
#include "server/networks/testing/model_fixture.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

using CountRow = std::vector<double>;

// The definition, once more and in doubles: what the fast path is compared with.
CountRow Linear(const TensorFile& file, const std::string& layer, const CountRow& x) {
  const Tensor& weight = file.tensors.at(layer + ".weight");
  const Tensor& bias = file.tensors.at(layer + ".bias");
  CountRow y(bias.values.begin(), bias.values.end());
  for (std::size_t o = 0; o < y.size(); ++o) {
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight.values[o * x.size() + i] * x[i];
  }
  return y;
}

CountRow Relu(CountRow x) {
  for (double& value : x) value = std::max(value, 0.0);
  return x;
}

CountRow Normalised(const TensorFile& file, CountRow x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = (x[i] - file.tensors.at("feature_mean").values[i]) /
           file.tensors.at("feature_std").values[i];
  }
  return x;
}

CountRow NaivePhi(const ModelFixture& fixture, const ShardFeatures& shard) {
  const auto& compute = fixture.manifest.compute;
  const TensorFile& file = fixture.files.at(compute.file);
  CountRow x;
  for (const std::string& name : compute.features) {
    double value = 0;
    if (name == "dim") {
      value = static_cast<double>(shard.cols);
    } else if (name == "row") {
      value = static_cast<double>(shard.rows);
    } else if (name == "pooling_factor") {
      value = shard.pooling_factor;
    } else {
      value = shard.reuse_histogram[static_cast<std::size_t>(std::stoi(name.substr(4)))];
    }
    x.push_back(compute.transforms.contains(name) ? std::log1p(value) : value);
  }
  x = Normalised(file, x);
  for (std::size_t i = 0; i + 1 < compute.layers.size(); ++i) {
    x = Relu(Linear(file, fmt::format("table.{}", i), x));
  }
  return x;
}

CountRow NaiveMlp(const TensorFile& file, const std::string& prefix, std::size_t widths,
                  CountRow x) {
  for (std::size_t i = 0; i + 1 < widths; ++i) {
    x = Linear(file, fmt::format("{}.{}", prefix, i), x);
    if (i + 2 < widths) x = Relu(x);
  }
  return x;
}

std::vector<ShardFeatures> RandomShards(std::size_t count, Random& random) {
  std::vector<ShardFeatures> shards(count);
  for (ShardFeatures& shard : shards) {
    shard.rows = random.Between(100, 40'000'000);
    shard.cols = 4 * random.Between(1, 32);
    shard.pooling_factor = 0.1 + 100 * random.UniformReal();
    double sum = 0;
    for (double& bin : shard.reuse_histogram) sum += bin = random.UniformReal();
    for (double& bin : shard.reuse_histogram) bin /= sum;
  }
  return shards;
}

std::vector<float> RandomRow(std::size_t count, double scale, Random& random) {
  std::vector<float> row(count);
  for (float& value : row) value = static_cast<float>(scale * random.UniformReal());
  return row;
}

// Weights of both signs, so that every ReLU has both sides at work.
ModelFixture SignedFixture(const ModelFixtureOptions& options) {
  ModelFixture fixture = MakeModelFixture(options);
  Random random(options.seed + 100);
  for (auto& [name, file] : fixture.files) {
    for (auto& [tensor_name, tensor] : file.tensors) {
      if (tensor_name == "feature_std") continue;
      for (float& value : tensor.values) {
        value = tensor_name == "feature_mean" ? static_cast<float>(random.UniformReal())
                : random.UniformReal() < 0.3  ? -value
                                              : 2 * value;
      }
    }
  }
  return fixture;
}

fs::path FreshRoot() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = fmt::format("neural_{}_{}", test->test_suite_name(), test->name());
  std::replace(name.begin(), name.end(), '/', '_');
  const fs::path root = fs::path(testing::TempDir()) / name;
  fs::remove_all(root);
  return root;
}

StatusOr<std::shared_ptr<const CostModel>> Load(const ModelFixture& fixture) {
  const fs::path directory =
      FreshRoot() / fixture.manifest.name / std::to_string(fixture.manifest.version);
  NS_RETURN_IF_ERROR(WriteModelDirectory(directory, fixture.manifest, fixture.files));
  return LoadCostModel(fixture.manifest, directory);
}

void ExpectNear(double actual, double expected) {
  EXPECT_NEAR(actual, expected, 2e-5 * std::max(1.0, std::abs(expected)));
}

class NeuralCostModelShapesTest : public testing::TestWithParam<ModelFixtureOptions> {
 protected:
  void SetUp() override {
    fixture_ = SignedFixture(GetParam());
    auto model = Load(fixture_);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    bound_ = model_->Bind({}).value();
    width_ = static_cast<std::size_t>(bound_->representation_width());
  }

  ModelFixture fixture_;
  std::shared_ptr<const CostModel> model_;
  std::optional<BoundCostModel> bound_;  // to one rank
  std::size_t width_ = 0;
};

TEST_P(NeuralCostModelShapesTest, ComputeIsTheDefinitionInDoubles) {
  Random random(7);
  const auto& compute = fixture_.manifest.compute;
  const auto shards = RandomShards(9, random);
  std::vector<float> phi(shards.size() * width_);
  bound_->compute()->Represent({}, shards, phi);

  CountRow naive_sum(width_);
  std::vector<float> sum(width_);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const CountRow naive = NaivePhi(fixture_, shards[i]);
    for (std::size_t k = 0; k < width_; ++k) {
      ExpectNear(phi[i * width_ + k], naive[k]);
      naive_sum[k] += naive[k];
      sum[k] += phi[i * width_ + k];
    }
  }
  std::vector<ComputeCost> cost(1);
  bound_->ComputeCosts(sum, cost);

  CountRow expected =
      NaiveMlp(fixture_.files.at(compute.file), "head", compute.head_layers.size(), naive_sum);
  expected = Relu(expected);
  if (expected.size() == 1) {
    ExpectNear(cost[0].total_ms, expected[0]);
    EXPECT_FALSE(model_->info().properties.splits_compute);
    EXPECT_THAT(std::string(model_->Bind({.optimizer = Optimizer::kNone}).status().message()),
                ::testing::HasSubstr("does not tell the forward pass"));
  } else {
    ExpectNear(cost[0].forward_ms, expected[0]);
    ExpectNear(cost[0].backward_ms, expected[1]);
    ExpectNear(cost[0].total_ms, expected[0] + expected[1]);
    EXPECT_TRUE(model_->info().properties.splits_compute);
  }
}

TEST_P(NeuralCostModelShapesTest, CommunicationIsTheDefinitionInDoubles) {
  Random random(8);
  constexpr std::size_t kRows = 5;
  for (std::size_t c = 0; c < GetParam().device_counts.size(); ++c) {
    const auto& forward = fixture_.manifest.forward_comm[c];
    const auto& backward = fixture_.manifest.backward_comm[c];
    const auto ranks = static_cast<std::size_t>(forward.num_devices);
    const auto dim_sums = RandomRow(kRows * ranks, 2000, random);
    const auto offsets_ms = RandomRow(kRows * ranks, 20, random);
    std::vector<float> forward_ms(kRows * ranks);
    std::vector<float> backward_ms(kRows * ranks);

    const BoundCostModel model = model_->Bind({.num_ranks = forward.num_devices}).value();
    model.comm().ForwardCosts(dim_sums, offsets_ms, forward_ms);
    model.comm().BackwardCosts(dim_sums, backward_ms);

    for (std::size_t row = 0; row < kRows; ++row) {
      CountRow inputs(dim_sums.begin() + row * ranks, dim_sums.begin() + (row + 1) * ranks);
      const TensorFile& backward_file = fixture_.files.at(backward.file);
      const CountRow expected_backward = Relu(NaiveMlp(
          backward_file, "layer", backward.layers.size(), Normalised(backward_file, inputs)));
      inputs.insert(inputs.end(), offsets_ms.begin() + row * ranks,
                    offsets_ms.begin() + (row + 1) * ranks);
      const TensorFile& forward_file = fixture_.files.at(forward.file);
      const CountRow expected_forward = Relu(
          NaiveMlp(forward_file, "layer", forward.layers.size(), Normalised(forward_file, inputs)));
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        ExpectNear(backward_ms[row * ranks + rank], expected_backward[rank]);
        ExpectNear(forward_ms[row * ranks + rank], expected_forward[rank]);
      }
    }
  }
}

TEST_P(NeuralCostModelShapesTest, ARowCostsTheSameAloneAndInABatch) {
  Random random(9);
  const auto shards = RandomShards(2200, random);  // more than run through the layers at once
  std::vector<float> together(shards.size() * width_);
  bound_->compute()->Represent({}, shards, together);
  std::vector<ComputeCost> costs(shards.size());
  bound_->ComputeCosts(together, costs);
  for (std::size_t i = 0; i < shards.size(); i += 31) {
    std::vector<float> alone(width_);
    bound_->compute()->Represent({}, {&shards[i], 1}, alone);
    ComputeCost cost;
    bound_->ComputeCosts(alone, {&cost, 1});
    for (std::size_t k = 0; k < width_; ++k) {
      EXPECT_NEAR(alone[k], together[i * width_ + k], 1e-5 * std::max(1.0F, alone[k]));
    }
    EXPECT_NEAR(cost.total_ms, costs[i].total_ms, 1e-5 * std::max(1.0F, cost.total_ms));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, NeuralCostModelShapesTest,
                         testing::Values(ModelFixtureOptions{},
                                         ModelFixtureOptions{.device_counts = {4},
                                                             .seed = 2,
                                                             .table_hidden = {128, 32},
                                                             .head_hidden = {64},
                                                             .comm_hidden = {128, 64, 32, 16}},
                                         ModelFixtureOptions{
                                             .device_counts = {2, 3, 8},
                                             .seed = 3,
                                             .table_hidden = {5},
                                             .head_hidden = {},
                                             .comm_hidden = {},
                                             .outputs = {"forward_ms", "backward_ms"}}));

TEST(NeuralCostModelTest, TheOrderOfARanksShardsDoesNotMatter) {
  const BoundCostModel model = (*Load(MakeModelFixture({})))->Bind({}).value();
  Random random(5);
  std::vector<std::vector<ShardFeatures>> set = {RandomShards(12, random)};
  const auto cost_of = [&] { return model.CostsOfSets(set).front().compute.total_ms; };
  const float cost = cost_of();
  for (int i = 0; i < 5; ++i) {
    random.Shuffle(set[0]);
    EXPECT_NEAR(cost_of(), cost, 1e-5 * cost);
  }
}

TEST(NeuralCostModelTest, OneRankNeedsNoCommunicationAndUnknownCountsAreNamed) {
  ModelFixture fixture = MakeModelFixture({.device_counts = {2, 4, 8}});
  fixture.files.erase(fixture.manifest.backward_comm[1].file);
  fixture.manifest.backward_comm.erase(fixture.manifest.backward_comm.begin() + 1);
  const auto model = *Load(fixture);

  EXPECT_THAT(model->info().coverage.num_devices, ElementsAre(2, 8));
  EXPECT_TRUE(model->Bind({.num_ranks = 2}).ok());
  const BoundCostModel one_rank = model->Bind({.num_ranks = 1}).value();
  const Status refused = model->Bind({.num_ranks = 4}).status();  // forward alone is not enough
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(Message(refused), HasSubstr("for 4 devices; it has them for 2, 8"));

  const std::vector<float> dims = {100, 200};
  std::vector<float> cost = {-1, -1};
  one_rank.comm().BackwardCosts(dims, cost);
  EXPECT_THAT(cost, ElementsAre(0, 0));
  cost = {-1, -1};
  one_rank.comm().ForwardCosts(dims, dims, cost);
  EXPECT_THAT(cost, ElementsAre(0, 0));
}

TEST(NeuralCostModelTest, CostsAreNeverNegativeAndNeverInfinite) {
  ModelFixture fixture = MakeModelFixture({.device_counts = {2}, .head_hidden = {}});
  TensorFile& compute = fixture.files["compute.safetensors"];
  compute.tensors["head.0.bias"].values = {-1e6F};
  const BoundCostModel cheap = (*Load(fixture))->Bind({}).value();
  std::vector<float> sum(static_cast<std::size_t>(cheap.representation_width()), 1.0F);
  ComputeCost cost{-1, -1, -1};
  cheap.ComputeCosts(sum, {&cost, 1});
  EXPECT_EQ(cost.total_ms, 0);

  sum.assign(sum.size(), std::numeric_limits<float>::max());
  for (float& weight : compute.tensors["head.0.weight"].values) weight = 2;
  const BoundCostModel overflowing = (*Load(fixture))->Bind({}).value();
  overflowing.ComputeCosts(sum, {&cost, 1});
  EXPECT_EQ(cost.total_ms, std::numeric_limits<float>::max());
}

TEST(NeuralCostModelTest, InfoSaysWhoTheModelIs) {
  ModelFixture fixture = MakeModelFixture({.name = "a100", .version = 12});
  fixture.manifest.metrics["compute.kendall_tau"] = "0.97";
  const auto model = *Load(fixture);
  EXPECT_EQ(model->info().name, "a100");
  EXPECT_EQ(model->info().version, 12);
  EXPECT_EQ(model->info().kind, "neural");
  EXPECT_EQ(model->info().coverage.features, NeuroShardFeatureNames());
  EXPECT_EQ(model->info().details.at("metrics.compute.kendall_tau"), "0.97");
  EXPECT_EQ(model->info().details.at("provenance.made_by"), "model_fixture");
}

TEST(NeuralCostModelTest, EmptyBatchesAreFine) {
  const BoundCostModel model = (*Load(MakeModelFixture({})))->Bind({.num_ranks = 2}).value();
  model.Represent({}, {}, {});
  model.ComputeCosts({}, {});
  model.comm().BackwardCosts({}, {});
  model.comm().ForwardCosts({}, {}, {});
  EXPECT_EQ(model.CostsOfSets({}).size(), 0U);
  EXPECT_EQ(model.CostsOfSets(std::vector<std::vector<ShardFeatures>>(1))[0].compute.total_ms, 0);
}

TEST(NeuralCostModelTest, ThreadsGetTheSameBits) {
  const BoundCostModel model = (*Load(MakeModelFixture({})))->Bind({}).value();
  Random random(6);
  const auto shards = RandomShards(50, random);
  const auto width = static_cast<std::size_t>(model.representation_width());
  const auto price = [&] {
    std::vector<float> phi(shards.size() * width);
    model.compute()->Represent({}, shards, phi);
    std::vector<ComputeCost> costs(shards.size());
    model.ComputeCosts(phi, costs);
    for (const ComputeCost& cost : costs) phi.push_back(cost.total_ms);
    return phi;
  };
  const std::vector<float> expected = price();
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) result = price();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

class NeuralCostModelRefusalTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = *WriteModelFixture(FreshRoot());
    fixture_ = MakeModelFixture({});
  }

  // What loading says once `file` has these contents.
  std::string RefusalWith(const std::string& file, const TensorFile& contents) {
    EXPECT_TRUE(WriteTensorFile(directory_ / file, contents).ok());
    const auto model = LoadCostModel(fixture_.manifest, directory_);
    EXPECT_TRUE(absl::IsInvalidArgument(model.status())) << model.status();
    return Message(model.status());
  }

  fs::path directory_;
  ModelFixture fixture_;
};

TEST_F(NeuralCostModelRefusalTest, TensorsThatAreNotTheManifests) {
  TensorFile file = fixture_.files["forward_comm_2.safetensors"];
  file.tensors.erase("layer.1.bias");
  file.tensors["layer.0.weight"].shape = {4, 16};
  file.tensors["extra"] = {{1}, {0}};
  const std::string refusal = RefusalWith("forward_comm_2.safetensors", file);
  EXPECT_THAT(refusal, HasSubstr("forward_comm_2.safetensors: layer.1.bias: missing"));
  EXPECT_THAT(refusal, HasSubstr("layer.0.weight: shape [4, 16], the manifest's layers ask for "
                                 "[16, 4]"));
  EXPECT_THAT(refusal, HasSubstr("extra: unexpected"));
}

TEST_F(NeuralCostModelRefusalTest, NumbersThatCannotBeUsed) {
  TensorFile file = fixture_.files["compute.safetensors"];
  file.tensors["feature_std"].values[3] = 0;
  EXPECT_THAT(RefusalWith("compute.safetensors", file),
              HasSubstr("feature_std: value 3 is 0, must be above 0"));
  file.tensors["feature_std"].values[3] = -1;
  EXPECT_THAT(RefusalWith("compute.safetensors", file), HasSubstr("value 3 is -1"));
  file = fixture_.files["compute.safetensors"];
  file.tensors["table.0.weight"].values[5] = std::nanf("");
  EXPECT_THAT(RefusalWith("compute.safetensors", file),
              HasSubstr("\"table.0.weight\": value 5 is nan"));
}

TEST_F(NeuralCostModelRefusalTest, AnOverflowInTheTrialRun) {
  TensorFile file = fixture_.files["backward_comm_4.safetensors"];
  for (float& value : file.tensors["layer.0.weight"].values) value = 3e38F;
  for (float& value : file.tensors["layer.1.weight"].values) value = 3e38F;
  EXPECT_THAT(RefusalWith("backward_comm_4.safetensors", file),
              HasSubstr("backward communication network for 4 devices: a trial run gives"));
}

TEST_F(NeuralCostModelRefusalTest, AMissingFile) {
  fs::remove(directory_ / "compute.safetensors");
  const auto model = LoadCostModel(fixture_.manifest, directory_);
  EXPECT_TRUE(absl::IsNotFound(model.status()));
  EXPECT_THAT(Message(model.status()), HasSubstr("compute.safetensors"));
}

}  // namespace
}  // namespace neuroshard
