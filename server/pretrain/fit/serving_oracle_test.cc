// libtorch as the oracle of what serving computes networks with. Whole models are held against
// training's predictions, which are libtorch's, in model_publication_test and
// universal_training_test.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "server/networks/mlp_network.h"
#include "server/networks/universal_comm.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/fit/torch_network.h"

namespace neuroshard {
namespace {

std::vector<float> Uniform(Random& random, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(2 * random.UniformReal() - 1);
  return values;
}

TEST(ServingOracleTest, MlpNetworkIsLibtorchsLinearAndRelu) {
  Random random(11);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::int64_t> widths;
    for (std::int64_t i = random.Between(2, 5); i > 0; --i) widths.push_back(random.Between(1, 70));
    const std::int64_t rows = random.Between(1, 200);
    const std::vector<float> inputs = Uniform(random, rows * widths.front());
    TensorFile file;
    at::Tensor x = ToTensor(inputs).view({rows, widths.front()});
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const auto weight = Uniform(random, widths[i + 1] * widths[i]);
      const auto bias = Uniform(random, widths[i + 1]);
      file.tensors[fmt::format("net.{}.weight", i)] = {{widths[i + 1], widths[i]}, weight};
      file.tensors[fmt::format("net.{}.bias", i)] = {{widths[i + 1]}, bias};
      x = at::linear(x, ToTensor(weight).view({widths[i + 1], widths[i]}), ToTensor(bias));
      if (i + 2 < widths.size()) x = at::relu(x);
    }
    std::vector<float> outputs(static_cast<std::size_t>(rows * widths.back()));
    MlpNetwork(file, "net", widths, DenseActivation::kNone).Run(rows, inputs, outputs);
    const double largest = x.abs().max().item<float>();
    EXPECT_LE((ToTensor(outputs).view_as(x) - x).abs().max().item<float>(), 1e-5 * largest);
  }
}

// One collective of five ranks, as serving prices it and as training predicts it.
TEST(ServingOracleTest, CommNetworkMemberIsWhatTrainingFitted) {
  Random random(12);
  NetworkManifest manifest;
  manifest.kind = NetworkKind::kUniversalComm;
  const auto names = CommFeatureNames();
  manifest.features.assign(names.begin(), names.end());
  manifest.layers = {static_cast<std::int64_t>(kCommFeatures), 7, 4, 1};
  const NetworkDefinition network = DefinitionOf(manifest);
  constexpr std::size_t kRanks = 5;
  constexpr auto kKind = CollectiveKind::kAllGather;
  std::vector<CommFeatureRow> rows(kRanks);
  std::vector<double> wait_ms;
  TrainingProblem problem;
  problem.columns = manifest.features;
  problem.sample_columns = 2 * kCollectiveKinds;
  problem.scale = {0.25};
  problem.sample_begin = {0};
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (double& value : rows[rank]) {
      value = 3 * random.UniformReal();
      problem.rows.push_back(static_cast<float>(value));
    }
    wait_ms.push_back(random.UniformReal());
    std::vector<float> known(2 * kCollectiveKinds);
    known[static_cast<std::size_t>(kKind)] = static_cast<float>(wait_ms[rank] / problem.scale[0]);
    known[kCollectiveKinds + static_cast<std::size_t>(kKind)] = 1;
    problem.sample_values.insert(problem.sample_values.end(), known.begin(), known.end());
    problem.sample_rows.push_back(static_cast<std::int64_t>(rank));
    problem.sample_begin.push_back(static_cast<std::int64_t>(rank) + 1);
  }
  problem.targets.resize(kRanks);
  problem.weights.resize(kRanks);
  const std::vector<std::int64_t> samples = {0, 1, 2, 3, 4};
  problem.Standardise(problem.Measure(samples));
  const std::vector<float> weights = WeightsOf(network, Uniform(random, network.num_values()));

  TensorFile file = problem.standardisation.File();
  AddNetwork(network, weights, problem.scale, problem.standardisation, "member.0.", file);
  std::vector<double> served_ms(kRanks);
  const Normalisation normalisation(file);
  std::vector<float> inputs;
  for (const CommFeatureRow& row : rows) {
    for (std::size_t k = 0; k < kCommFeatures; ++k) {
      inputs.push_back(normalisation.Apply(k, row[k]));
    }
  }
  CommNetworkMember(file, "member.0.", manifest.layers).Costs(kKind, inputs, wait_ms, served_ms);
  const std::vector<double> trained_ms = PredictCosts(problem, network, weights, samples);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_NEAR(served_ms[rank], trained_ms[rank], 1e-5 * trained_ms[rank]);
  }
}

}  // namespace
}  // namespace neuroshard
