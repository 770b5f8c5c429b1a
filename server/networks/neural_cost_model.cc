#include "server/networks/neural_cost_model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "server/cost/feature_columns.h"
#include "server/cost/unmeasured_compute.h"
#include "server/cost/volume_equivalent.h"
#include "server/networks/comm_network.h"
#include "server/networks/manifest_info.h"
#include "server/networks/mlp_network.h"
#include "server/networks/network_tensors.h"
#include "server/networks/normalisation.h"
#include "server/networks/safetensors.h"

namespace neuroshard {
namespace {

// What an overflowing network says is no reason to pick it: NaN and infinity become the largest
// float.
float Cost(float value) {
  if (!std::isfinite(value) && !(value < 0)) return std::numeric_limits<float>::max();
  return std::max(value, 0.0F);
}

// phi and head with what they need at their input.
class NeuralCompute final : public ComputeModel {
 public:
  NeuralCompute(const ComputeNetworkManifest& manifest, FeatureColumns columns,
                const TensorFile& file)
      : columns_(std::move(columns)),
        normalisation_(file),
        phi_(file, "table", manifest.table_layers, DenseActivation::kRelu),
        head_(file, "head", manifest.head_layers, DenseActivation::kNone) {}

  int representation_width() const override { return static_cast<int>(phi_.output_width()); }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    const std::size_t width = normalisation_.size();
    std::vector<double> row(width);
    std::vector<float> inputs(shards.size() * width);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      ShardFeatures shard = shards[i];
      shard.pooling_factor = ShardPoolingFactor(conditions, shard);
      columns_.Fill(shard, row);
      for (std::size_t column = 0; column < width; ++column) {
        inputs[i * width + column] = normalisation_.Apply(column, row[column]);
      }
    }
    phi_.Run(static_cast<std::int64_t>(shards.size()), inputs, phi);
    // What has no rows is not looked up.
    const std::size_t out_width = phi_.output_width();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      if (shards[i].rows == 0) std::fill_n(phi.begin() + i * out_width, out_width, 0.0F);
    }
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    constexpr std::size_t kBlockRows = 1024;
    std::array<float, 2 * kBlockRows> values;
    const auto inputs = static_cast<std::size_t>(head_.input_width());
    const auto outputs = static_cast<std::size_t>(head_.output_width());
    for (std::size_t begin = 0; begin < out.size(); begin += kBlockRows) {
      const std::size_t rows = std::min(kBlockRows, out.size() - begin);
      head_.Run(static_cast<std::int64_t>(rows), sums.subspan(begin * inputs, rows * inputs),
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

  // What the head says about one plausible shard.
  std::vector<float> TrialRun() const {
    ShardFeatures shard;
    shard.rows = 1'000'000;
    shard.cols = 64;
    shard.reuse_histogram[0] = 1;
    std::vector<float> sum(static_cast<std::size_t>(phi_.output_width()));
    Represent({}, {&shard, 1}, sum);
    std::vector<float> compute_ms(static_cast<std::size_t>(head_.output_width()));
    head_.Run(1, sum, compute_ms);
    return compute_ms;
  }

 private:
  FeatureColumns columns_;
  Normalisation normalisation_;
  MlpNetwork phi_;
  MlpNetwork head_;
};

using CommNetworks = std::map<int, std::shared_ptr<const CommNetwork>>;  // by rank count

// Both directions at one rank count; loads are VolumeEquivalent's.
class NeuralComm final : public CommModel {
 public:
  NeuralComm(const PricingConditions& conditions, std::shared_ptr<const CommNetwork> forward,
             std::shared_ptr<const CommNetwork> backward)
      : conditions_(conditions), forward_(std::move(forward)), backward_(std::move(backward)) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    return VolumeEquivalent(conditions_, shard);
  }

  void BackwardCosts(std::span<const float> loads, std::span<float> cost_ms) const override {
    const std::span<const float> parts[] = {loads};
    Run(*backward_, parts, cost_ms);
  }

  void ForwardCosts(std::span<const float> loads, std::span<const float> start_offsets_ms,
                    std::span<float> cost_ms) const override {
    const std::span<const float> parts[] = {loads, start_offsets_ms};
    Run(*forward_, parts, cost_ms);
  }

 private:
  static void Run(const CommNetwork& network, std::span<const std::span<const float>> parts,
                  std::span<float> cost_ms) {
    network.Run(parts, cost_ms);
    for (float& value : cost_ms) value = Cost(value);
  }

  const PricingConditions conditions_;
  const std::shared_ptr<const CommNetwork> forward_;
  const std::shared_ptr<const CommNetwork> backward_;
};

CostModelInfo MakeInfo(const ModelManifest& manifest) {
  CostModelInfo info = InfoOfManifest(manifest);
  info.kind = "neural";
  info.coverage.features = manifest.compute.features;
  info.properties.splits_compute = manifest.compute.outputs.size() == 2;
  for (const CommNetworkManifest& forward : manifest.forward_comm) {
    for (const CommNetworkManifest& backward : manifest.backward_comm) {
      if (forward.num_devices == backward.num_devices) {
        info.coverage.num_devices.push_back(forward.num_devices);
      }
    }
  }
  return info;
}

class NeuralCostModel final : public CostModel {
 public:
  NeuralCostModel(CostModelInfo info, std::shared_ptr<const NeuralCompute> compute,
                  CommNetworks forward, CommNetworks backward)
      : CostModel(std::move(info)),
        compute_(std::move(compute)),
        forward_(std::move(forward)),
        backward_(std::move(backward)) {}

  StatusOr<BoundCostModel> Bind(const PricingConditions& conditions) const override {
    const int num_ranks = conditions.num_ranks;
    std::shared_ptr<const CommModel> comm = CommOfOneRank();
    if (num_ranks != 1) {
      const auto& counts = info().coverage.num_devices;
      if (!std::binary_search(counts.begin(), counts.end(), num_ranks)) {
        return FailedPrecondition(
            "cost model {} version {} has no communication networks for {} devices; it has them "
            "for {}",
            info().name, info().version, num_ranks,
            counts.empty() ? "none (1 device needs no communication)"
                           : fmt::format("{}", fmt::join(counts, ", ")));
      }
      comm = std::make_shared<const NeuralComm>(conditions, forward_.at(num_ranks),
                                                backward_.at(num_ranks));
    }
    return BoundCostModel(conditions, info().properties, info().coverage.sharding_types,
                          WithUnmeasured(compute_, info(), conditions), std::move(comm));
  }

  // Every network once on plausible inputs: the first caller pays for no page faults, and what is
  // not finite here never will be.
  Status WarmUp() const {
    NS_RETURN_IF_ERROR(CheckFinite(compute_->TrialRun(), "compute network"));
    for (const auto& [direction, networks] :
         {std::pair{"forward", &forward_}, std::pair{"backward", &backward_}}) {
      for (const auto& [ranks, network] : *networks) {
        const std::vector<float> dim_sums(static_cast<std::size_t>(ranks), 512.0F);
        const std::vector<float> start_offsets_ms(dim_sums.size(), 0.0F);
        std::vector<float> cost_ms(dim_sums.size());
        const std::span<const float> parts[] = {dim_sums, start_offsets_ms};
        network->Run(std::span(parts).first(networks == &forward_ ? 2 : 1), cost_ms);
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

  const std::shared_ptr<const NeuralCompute> compute_;
  const CommNetworks forward_;
  const CommNetworks backward_;
};

StatusOr<CommNetworks> LoadCommNetworks(const std::vector<CommNetworkManifest>& manifests,
                                        const std::filesystem::path& directory) {
  CommNetworks networks;
  for (const CommNetworkManifest& manifest : manifests) {
    NS_ASSIGN_OR_RETURN(const TensorFile file,
                        ReadNetworkFile(directory / manifest.file, CommNetworkTensors(manifest)));
    networks.emplace(manifest.num_devices, std::make_shared<const CommNetwork>(manifest, file));
  }
  return networks;
}

}  // namespace

StatusOr<std::shared_ptr<const CostModel>> LoadNeuralCostModel(
    const ModelManifest& manifest, const std::filesystem::path& directory) {
  const ComputeNetworkManifest& compute = manifest.compute;
  NS_ASSIGN_OR_RETURN(FeatureColumns columns,
                      FeatureColumns::Create(compute.features, compute.transforms));
  NS_ASSIGN_OR_RETURN(const TensorFile file,
                      ReadNetworkFile(directory / compute.file, ComputeNetworkTensors(compute)));
  NS_ASSIGN_OR_RETURN(CommNetworks forward, LoadCommNetworks(manifest.forward_comm, directory));
  NS_ASSIGN_OR_RETURN(CommNetworks backward, LoadCommNetworks(manifest.backward_comm, directory));
  auto model = std::make_shared<const NeuralCostModel>(
      MakeInfo(manifest), std::make_shared<const NeuralCompute>(compute, std::move(columns), file),
      std::move(forward), std::move(backward));
  NS_RETURN_IF_ERROR(Annotate(model->WarmUp(), directory.string()));
  return model;
}

}  // namespace neuroshard
