#include "server/cost/neural/neural_cost_model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "server/cost/feature_columns.h"
#include "server/cost/neural/comm_network.h"
#include "server/cost/neural/mlp_network.h"
#include "server/cost/neural/normalisation.h"
#include "server/cost/volume_equivalent.h"
#include "server/models/manifest_info.h"
#include "server/models/network_tensors.h"
#include "server/models/safetensors.h"

namespace neuroshard {
namespace {

// What an overflowing network says is no reason to pick it: NaN and infinity become the largest
// float.
float Cost(float value) {
  if (!std::isfinite(value) && !(value < 0)) return std::numeric_limits<float>::max();
  return std::max(value, 0.0F);
}

// phi and head with what they need at their input.
struct ComputeNetwork {
  ComputeNetwork(const ComputeNetworkManifest& manifest, FeatureColumns feature_columns,
                 const TensorFile& file)
      : columns(std::move(feature_columns)),
        normalisation(file),
        phi(file, "table", manifest.table_layers, DenseActivation::kRelu),
        head(file, "head", manifest.head_layers, DenseActivation::kNone) {}

  FeatureColumns columns;
  Normalisation normalisation;
  MlpNetwork phi;
  MlpNetwork head;
};

using CommNetworks = std::map<int, CommNetwork>;  // by rank count

CostModelInfo MakeInfo(const ModelManifest& manifest) {
  CostModelInfo info = InfoOfManifest(manifest);
  info.kind = "neural";
  info.features = manifest.compute.features;
  info.splits_compute = manifest.compute.outputs.size() == 2;
  for (const CommNetworkManifest& forward : manifest.forward_comm) {
    for (const CommNetworkManifest& backward : manifest.backward_comm) {
      if (forward.num_devices == backward.num_devices) {
        info.num_devices.push_back(forward.num_devices);
      }
    }
  }
  return info;
}

class NeuralCostModel final : public CostModel {
 public:
  NeuralCostModel(CostModelInfo info, ComputeNetwork compute, CommNetworks forward,
                  CommNetworks backward)
      : info_(std::move(info)),
        compute_(std::move(compute)),
        forward_(std::move(forward)),
        backward_(std::move(backward)) {}

  const CostModelInfo& info() const override { return info_; }

  Status CheckConditions(const PricingConditions& conditions) const override {
    const int num_ranks = conditions.num_ranks;
    const auto& counts = info_.num_devices;
    if (num_ranks == 1 || std::binary_search(counts.begin(), counts.end(), num_ranks)) {
      return absl::OkStatus();
    }
    return FailedPrecondition(
        "cost model {} version {} has no communication networks for {} devices; it has them for {}",
        info_.name, info_.version, num_ranks,
        counts.empty() ? "none (1 device needs no communication)"
                       : fmt::format("{}", fmt::join(counts, ", ")));
  }

  int representation_width() const override {
    return static_cast<int>(compute_.phi.output_width());
  }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi, std::span<CommLoad> loads) const override {
    const std::size_t width = compute_.normalisation.size();
    std::vector<double> row(width);
    std::vector<float> inputs(shards.size() * width);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      ShardFeatures shard = shards[i];
      shard.pooling_factor = ShardPoolingFactor(conditions, shard);
      loads[i] = VolumeEquivalent(conditions, shard);
      compute_.columns.Fill(shard, row);
      for (std::size_t column = 0; column < width; ++column) {
        inputs[i * width + column] = compute_.normalisation.Apply(column, row[column]);
      }
    }
    compute_.phi.Run(static_cast<std::int64_t>(shards.size()), inputs, phi);
    // What has no rows is not looked up.
    const std::size_t out_width = compute_.phi.output_width();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      if (shards[i].rows == 0) std::fill_n(phi.begin() + i * out_width, out_width, 0.0F);
    }
  }

  void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out) const override {
    constexpr std::size_t kBlockRows = 1024;
    std::array<float, 2 * kBlockRows> values;
    const auto inputs = static_cast<std::size_t>(compute_.head.input_width());
    const auto outputs = static_cast<std::size_t>(compute_.head.output_width());
    for (std::size_t begin = 0; begin < out.size(); begin += kBlockRows) {
      const std::size_t rows = std::min(kBlockRows, out.size() - begin);
      compute_.head.Run(static_cast<std::int64_t>(rows),
                        sums.subspan(begin * inputs, rows * inputs),
                        std::span(values).first(rows * outputs));
      for (std::size_t i = 0; i < rows; ++i) {
        if (outputs == 1) {
          out[begin + i] = {.total_ms = Cost(values[i])};
        } else {
          const float forward_ms = Cost(values[2 * i]);
          const float backward_ms = Cost(values[2 * i + 1]);
          out[begin + i] = {Cost(forward_ms + backward_ms), forward_ms, backward_ms};
        }
      }
    }
  }

  void BackwardCommCosts(int num_ranks, std::span<const float> loads,
                         std::span<float> cost_ms) const override {
    const std::span<const float> parts[] = {loads};
    CommCosts(backward_, num_ranks, parts, cost_ms);
  }

  void ForwardCommCosts(int num_ranks, std::span<const float> loads,
                        std::span<const float> start_offsets_ms,
                        std::span<float> cost_ms) const override {
    const std::span<const float> parts[] = {loads, start_offsets_ms};
    CommCosts(forward_, num_ranks, parts, cost_ms);
  }

  // Every network once on plausible inputs: the first caller pays for no page faults, and what is
  // not finite here never will be.
  Status WarmUp() const {
    ShardFeatures shard;
    shard.rows = 1'000'000;
    shard.cols = 64;
    shard.reuse_histogram[0] = 1;
    std::vector<float> sum(static_cast<std::size_t>(compute_.phi.output_width()));
    CommLoad load;
    Represent({}, {&shard, 1}, sum, {&load, 1});
    std::vector<float> compute_ms(static_cast<std::size_t>(compute_.head.output_width()));
    compute_.head.Run(1, sum, compute_ms);
    NS_RETURN_IF_ERROR(CheckFinite(compute_ms, "compute network"));
    for (const auto& [direction, networks] :
         {std::pair{"forward", &forward_}, std::pair{"backward", &backward_}}) {
      for (const auto& [ranks, network] : *networks) {
        const std::vector<float> dim_sums(static_cast<std::size_t>(ranks), 512.0F);
        const std::vector<float> start_offsets_ms(dim_sums.size(), 0.0F);
        std::vector<float> cost_ms(dim_sums.size());
        const std::span<const float> parts[] = {dim_sums, start_offsets_ms};
        network.Run(std::span(parts).first(networks == &forward_ ? 2 : 1), cost_ms);
        NS_RETURN_IF_ERROR(CheckFinite(
            cost_ms, fmt::format("{} communication network for {} devices", direction, ranks)));
      }
    }
    return absl::OkStatus();
  }

 private:
  static Status CheckFinite(const std::vector<float>& values, std::string_view network) {
    for (const float value : values) {
      if (!std::isfinite(value)) {
        return InvalidArgument("{}: a trial run gives {}, must be finite", network, value);
      }
    }
    return absl::OkStatus();
  }

  static void CommCosts(const CommNetworks& networks, int num_ranks,
                        std::span<const std::span<const float>> parts, std::span<float> cost_ms) {
    if (num_ranks == 1) {
      std::fill(cost_ms.begin(), cost_ms.end(), 0.0F);
      return;
    }
    const auto network = networks.find(num_ranks);
    assert(network != networks.end());
    network->second.Run(parts, cost_ms);
    for (float& value : cost_ms) value = Cost(value);
  }

  CostModelInfo info_;
  ComputeNetwork compute_;
  CommNetworks forward_;
  CommNetworks backward_;
};

StatusOr<TensorFile> ReadChecked(const std::filesystem::path& path,
                                 const std::vector<TensorSpec>& expected) {
  NS_ASSIGN_OR_RETURN(TensorFile file, ReadTensorFile(path));
  NS_RETURN_IF_ERROR(CheckNetworkTensors(expected, file, path.string()));
  return file;
}

StatusOr<CommNetworks> LoadCommNetworks(const std::vector<CommNetworkManifest>& manifests,
                                        const std::filesystem::path& directory) {
  CommNetworks networks;
  for (const CommNetworkManifest& manifest : manifests) {
    NS_ASSIGN_OR_RETURN(const TensorFile file,
                        ReadChecked(directory / manifest.file, CommNetworkTensors(manifest)));
    networks.emplace(manifest.num_devices, CommNetwork(manifest, file));
  }
  return networks;
}

StatusOr<std::shared_ptr<const CostModel>> Load(const ModelManifest& manifest,
                                                const std::filesystem::path& directory) {
  const ComputeNetworkManifest& compute = manifest.compute;
  NS_ASSIGN_OR_RETURN(FeatureColumns columns,
                      FeatureColumns::Create(compute.features, compute.transforms));
  NS_ASSIGN_OR_RETURN(const TensorFile file,
                      ReadChecked(directory / compute.file, ComputeNetworkTensors(compute)));
  NS_ASSIGN_OR_RETURN(CommNetworks forward, LoadCommNetworks(manifest.forward_comm, directory));
  NS_ASSIGN_OR_RETURN(CommNetworks backward, LoadCommNetworks(manifest.backward_comm, directory));
  auto model = std::make_shared<const NeuralCostModel>(
      MakeInfo(manifest), ComputeNetwork(compute, std::move(columns), file), std::move(forward),
      std::move(backward));
  NS_RETURN_IF_ERROR(Annotate(model->WarmUp(), directory.string()));
  return model;
}

}  // namespace

StatusOr<std::shared_ptr<const CostModel>> LoadNeuralCostModel(
    const ModelManifest& manifest, const std::filesystem::path& directory) {
  return Load(manifest, directory);
}

}  // namespace neuroshard
