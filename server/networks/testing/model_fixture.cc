#include "server/networks/testing/model_fixture.h"

#include <cmath>

#include "common/base/random.h"
#include "server/cost/feature_columns.h"
#include "server/networks/model_directory.h"
#include "server/networks/network_tensors.h"

namespace neuroshard {
namespace {

Tensor Filled(const std::vector<std::int64_t>& shape, float value) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return {shape, std::vector<float>(count, value)};
}

// Weights of mean 1 / inputs keep a layer's outputs at the order of its inputs.
TensorFile RandomNetwork(const std::vector<TensorSpec>& specs, Random& random) {
  TensorFile file;
  for (const TensorSpec& spec : specs) {
    Tensor tensor = Filled(spec.shape, 0);
    const double scale = spec.shape.size() == 2 ? 2.0 / static_cast<double>(spec.shape[1]) : 0.1;
    for (float& value : tensor.values) value = static_cast<float>(scale * random.UniformReal());
    file.tensors[spec.name] = std::move(tensor);
  }
  return file;
}

TensorFile ComputeNetwork(const NetworkManifest& compute, Random& random) {
  TensorFile file = RandomNetwork(NetworkTensors(compute), random);
  Tensor& mean = file.tensors["feature_mean"];
  Tensor& deviation = file.tensors["feature_std"];
  for (std::size_t i = 0; i < compute.features.size(); ++i) {
    const std::string& feature = compute.features[i];
    mean.values[i] = 0;
    deviation.values[i] = feature == "dim"              ? 16.0F
                          : feature == "pooling_factor" ? 4.0F
                          : feature == "row"            ? 4.0F  // of log1p
                                                        : 1.0F;
  }
  return file;
}

TensorFile CommNetwork(const NetworkManifest& network, CommDirection direction, Random& random) {
  TensorFile file = RandomNetwork(NetworkTensors(network), random);
  const auto ranks = static_cast<std::size_t>(network.num_devices);
  Tensor& deviation = file.tensors["feature_std"];
  file.tensors["feature_mean"] = Filled({network.layers.front()}, 0);
  for (std::size_t i = 0; i < deviation.values.size(); ++i) {
    deviation.values[i] = i < ranks || direction == CommDirection::kBackward ? 256.0F : 10.0F;
  }
  return file;
}

std::vector<std::int64_t> Widths(std::int64_t inputs, const std::vector<std::int64_t>& hidden,
                                 std::int64_t outputs) {
  std::vector<std::int64_t> widths = {inputs};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(outputs);
  return widths;
}

}  // namespace

ModelFixture MakeModelFixture(const ModelFixtureOptions& options) {
  Random random(options.seed);
  ModelFixture fixture;
  ModelManifest& manifest = fixture.manifest;
  manifest.name = options.name;
  manifest.version = options.version;
  manifest.device = "none (made-up numbers for tests)";
  manifest.backend = "neuroshard-cpu";
  manifest.collective_backend = "neuroshard-tcp";
  manifest.global_batch_size = 65536;
  manifest.weight_dtype = "fp32";
  manifest.optimizer = "sgd";
  manifest.provenance["made_by"] = "model_fixture";
  manifest.provenance["seed"] = std::to_string(options.seed);

  NetworkManifest& compute = manifest.compute;
  compute.file = "compute.safetensors";
  compute.features = NeuroShardFeatureNames();
  compute.transforms = {{"row", "log1p"}};
  compute.layers = {static_cast<std::int64_t>(compute.features.size())};
  compute.layers.insert(compute.layers.end(), options.table_hidden.begin(),
                        options.table_hidden.end());
  compute.outputs = options.outputs;
  compute.head_layers = Widths(compute.layers.back(), options.head_hidden,
                               static_cast<std::int64_t>(options.outputs.size()));
  fixture.files[compute.file] = ComputeNetwork(compute, random);

  for (const int ranks : options.device_counts) {
    NetworkManifest& forward = manifest.forward_comm.emplace_back();
    NetworkManifest& backward = manifest.backward_comm.emplace_back();
    for (NetworkManifest* network : {&forward, &backward}) {
      const bool is_forward = network == &forward;
      network->kind = NetworkKind::kDeviceCount;
      network->file =
          fmt::format("{}_comm_{}.safetensors", is_forward ? "forward" : "backward", ranks);
      network->num_devices = ranks;
      network->layers = Widths(is_forward ? 2 * ranks : ranks, options.comm_hidden, ranks);
    }
    fixture.files[forward.file] = CommNetwork(forward, CommDirection::kForward, random);
    fixture.files[backward.file] = CommNetwork(backward, CommDirection::kBackward, random);
  }
  return fixture;
}

StatusOr<std::filesystem::path> WriteModelFixture(const std::filesystem::path& root,
                                                  const ModelFixtureOptions& options) {
  const ModelFixture fixture = MakeModelFixture(options);
  const std::filesystem::path directory = root / options.name / std::to_string(options.version);
  NS_RETURN_IF_ERROR(WriteModelDirectory(directory, fixture.manifest, fixture.files));
  return directory;
}

}  // namespace neuroshard
