#include "server/networks/testing/universal_fixture.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "common/base/random.h"
#include "server/cost/comm_features.h"
#include "server/cost/compute_features.h"
#include "server/networks/model_directory.h"
#include "server/networks/network_tensors.h"

namespace neuroshard {
namespace {

// Members after the first are the first with every weight off by up to a tenth.
TensorFile SignedNetwork(const std::vector<TensorSpec>& specs, Random& random) {
  TensorFile file;
  for (const TensorSpec& spec : specs) {
    const auto count = static_cast<std::size_t>(spec.count());
    Tensor tensor{spec.shape, std::vector<float>(count)};
    const auto member = spec.name.find('.');
    const auto first =
        spec.name.starts_with("member.")
            ? file.tensors.find("member.0" + spec.name.substr(spec.name.find('.', member + 1)))
            : file.tensors.end();
    const std::size_t columns = static_cast<std::size_t>(spec.shape.back());
    const double scale = spec.shape.size() == 2 ? 1.5 / static_cast<double>(columns) : 0.2;
    for (std::size_t i = 0; i < count; ++i) {
      if (first != file.tensors.end()) {
        tensor.values[i] =
            first->second.values[i] * static_cast<float>(0.9 + 0.2 * random.UniformReal());
        continue;
      }
      const bool any_sign = i % columns >= static_cast<std::size_t>(spec.non_negative_columns);
      const double sign = any_sign && random.UniformReal() < 0.5 ? -1 : 1;
      tensor.values[i] = static_cast<float>(sign * scale * random.UniformReal());
    }
    file.tensors[spec.name] = std::move(tensor);
  }
  return file;
}

// Bins, shares and words as they are, logarithms to the order of 1.
void SetNormalisation(std::span<const std::string> features, TensorFile& file) {
  for (std::size_t i = 0; i < features.size(); ++i) {
    const bool is_plain = features[i].starts_with("bin_") ||
                          features[i].starts_with("optimizer_") ||
                          features[i].starts_with("collective_");
    file.tensors["feature_mean"].values[i] = is_plain ? 0 : 6;
    file.tensors["feature_std"].values[i] = is_plain ? 1 : 4;
  }
}

template <typename Names>
std::vector<std::string> AsTexts(const Names& names) {
  return {names.begin(), names.end()};
}

std::vector<std::int64_t> WidthsOf(std::int64_t inputs, const std::vector<std::int64_t>& others) {
  std::vector<std::int64_t> widths = {inputs};
  widths.insert(widths.end(), others.begin(), others.end());
  return widths;
}

}  // namespace

ModelFixture MakeUniversalFixture(const UniversalFixtureOptions& options) {
  Random random(options.seed);
  ModelFixture fixture;
  ModelManifest& manifest = fixture.manifest;
  manifest.name = options.name;
  manifest.version = options.version;
  manifest.device = "none (made-up numbers for tests)";
  manifest.backend = "neuroshard-cpu";
  manifest.collective_backend = "neuroshard-tcp";
  manifest.provenance["made_by"] = "universal_fixture";
  const IntervalManifest interval{0.9, 1.5, {0.5, 5}, {0.1, 0.05}};

  NetworkManifest& compute = manifest.compute;
  compute.kind = NetworkKind::kUniversalTableSum;
  compute.file = "compute.safetensors";
  compute.features = AsTexts(ComputeFeatureNames());
  compute.cache_bytes = options.cache_bytes;
  compute.layers =
      WidthsOf(static_cast<std::int64_t>(compute.features.size()), options.table_hidden);
  compute.outputs = options.outputs;
  compute.head_layers = {compute.layers.back(), options.head_width, std::ssize(compute.outputs)};
  compute.members = options.members;
  if (options.has_intervals) compute.interval = interval;
  TensorFile& file = fixture.files[compute.file];
  file = SignedNetwork(NetworkTensors(compute), random);
  SetNormalisation(compute.features, file);

  TrainedOnManifest& trained_on = manifest.trained_on.emplace();
  trained_on.min_batch_size = 1024;
  trained_on.max_batch_size = 65536;
  trained_on.weight_dtypes = {"fp32"};
  trained_on.optimizers = {"sgd", "rowwise_adagrad"};
  trained_on.weighted = {"false", "true"};
  trained_on.pooling_modes = {"sum"};
  if (!options.has_comm) return fixture;
  trained_on.min_ranks = 2;
  trained_on.max_ranks = 8;
  trained_on.max_hosts = options.max_hosts;
  trained_on.collectives = options.collectives;
  NetworkManifest& comm = manifest.comm.emplace();
  comm.kind = NetworkKind::kUniversalComm;
  comm.file = "comm.safetensors";
  comm.features = AsTexts(CommFeatureNames());
  comm.layers = WidthsOf(static_cast<std::int64_t>(comm.features.size()), options.comm_hidden);
  comm.layers.push_back(1);
  comm.members = options.members;
  if (options.has_intervals) {
    comm.interval = interval;
    comm.intervals = options.intervals;
  }
  TensorFile& comm_file = fixture.files[comm.file];
  comm_file = SignedNetwork(NetworkTensors(comm), random);
  SetNormalisation(comm.features, comm_file);
  return fixture;
}

StatusOr<std::filesystem::path> WriteUniversalFixture(const std::filesystem::path& root,
                                                      const UniversalFixtureOptions& options) {
  const ModelFixture fixture = MakeUniversalFixture(options);
  const std::filesystem::path directory = root / options.name / std::to_string(options.version);
  NS_RETURN_IF_ERROR(WriteModelDirectory(directory, fixture.manifest, fixture.files));
  return directory;
}

}  // namespace neuroshard
