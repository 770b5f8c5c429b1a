#include "server/pretrain/fit/network_definition.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/cost/comm_features.h"

namespace neuroshard {
namespace {

NetworkManifest SmallCompute() {
  NetworkManifest manifest;
  manifest.kind = NetworkKind::kUniversalTableSum;
  manifest.features = {"a", "b", "c"};
  manifest.layers = {3, 5, 4};
  manifest.head_layers = {4, 6, 2};
  manifest.outputs = {"forward_ms", "backward_ms"};
  manifest.members = 3;
  return manifest;
}

NetworkManifest SmallComm() {
  NetworkManifest manifest;
  manifest.kind = NetworkKind::kUniversalComm;
  manifest.layers = {static_cast<std::int64_t>(kCommFeatures), 4, 1};
  const auto names = CommFeatureNames();
  manifest.features.assign(names.begin(), names.end());
  return manifest;
}

std::vector<NetworkDefinition> AllKinds() {
  NetworkManifest compute;
  compute.features = {"a", "b"};
  compute.layers = {2, 3};
  compute.head_layers = {3, 4, 2};
  NetworkManifest comm;
  comm.kind = NetworkKind::kDeviceCount;
  comm.layers = {4, 3, 2};
  return {DefinitionOf(compute), DefinitionOf(comm), DefinitionOf(SmallCompute()),
          DefinitionOf(SmallComm())};
}

// A file refuses negative weights where costs must not fall.
Status CheckFile(const NetworkDefinition& network, const TensorFile& file) {
  return CheckNetworkTensors(network.tensors, file, "file");
}

TEST(NetworkDefinitionTest, ParametersOfAnySignGiveWeightsThatTheFormatAllows) {
  Random random(3);
  for (const NetworkDefinition& network : AllKinds()) {
    std::vector<float> parameters(static_cast<std::size_t>(network.num_values()));
    for (float& value : parameters) value = static_cast<float>(2 * random.UniformReal() - 1);
    const std::vector<float> weights = WeightsOf(network, parameters);
    const bool universal_comm = network.kind == NetworkKind::kUniversalComm;
    Standardisation all_vary;
    all_vary.deviation.assign(network.tensors.front().shape[1], 1);
    TensorFile file;
    AddNetwork(network, weights, std::vector<double>(universal_comm ? 1 : 2, 1.0), all_vary, "",
               file);
    EXPECT_TRUE(CheckFile(network, file).ok()) << CheckFile(network, file);
    const bool universal = universal_comm || network.kind == NetworkKind::kUniversalTableSum;
    EXPECT_EQ(weights == parameters, !universal);
    const std::vector<float> again = WeightsOf(network, ParametersOf(network, weights));
    for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(again[i], weights[i], 1e-6);
  }
}

TEST(NetworkDefinitionTest, AFilesNetworkComesBack) {
  Random random(5);
  for (const NetworkDefinition& network : AllKinds()) {
    const bool comm = network.kind == NetworkKind::kUniversalComm;
    const std::vector<double> scale = comm ? std::vector<double>{0.3} : std::vector<double>{0.3, 7};
    const std::vector<float> weights = WeightsOf(network, InitialParameters(network, random));
    Standardisation first_is_constant;
    first_is_constant.deviation.assign(network.tensors.front().shape[1], 1);
    first_is_constant.deviation[0] = 0;
    TensorFile file;
    AddNetwork(network, weights, scale, first_is_constant, "member.2.", file);
    const auto columns = static_cast<std::size_t>(network.tensors.front().shape[1]);
    const auto first = static_cast<std::size_t>(network.tensors.front().shape[0]) * columns;
    const std::vector<float> again = ReadNetwork(network, file, "member.2.", scale);
    ASSERT_EQ(again.size(), weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const bool ignored = i < first && i % columns == 0;
      EXPECT_NEAR(again[i], ignored ? 0 : weights[i], 1e-6) << i;
    }
    EXPECT_TRUE(ReadNetwork(network, file, "member.1.", scale).empty());
    file.tensors.begin()->second.shape.push_back(1);
    EXPECT_TRUE(ReadNetwork(network, file, "member.2.", scale).empty());
  }
}

}  // namespace
}  // namespace neuroshard
