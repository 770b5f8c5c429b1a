#include "server/networks/neural_comm.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "server/cost/volume_equivalent.h"
#include "server/networks/network_compute.h"
#include "server/networks/network_tensors.h"

namespace neuroshard {
namespace {

thread_local std::vector<float> comm_inputs;

}  // namespace

void NeuralComm::Network::Run(std::span<const std::span<const float>> parts,
                              std::span<float> cost_ms) const {
  constexpr std::size_t kBlockRows = 1024;  // whose inputs are laid out together
  const auto ranks = static_cast<std::size_t>(mlp.output_width());
  assert(parts.size() * ranks == static_cast<std::size_t>(mlp.input_width()));
  const std::size_t rows = cost_ms.size() / ranks;
  for (std::size_t begin = 0; begin < rows; begin += kBlockRows) {
    const std::size_t end = std::min(begin + kBlockRows, rows);
    comm_inputs.clear();
    for (std::size_t row = begin; row < end; ++row) {
      std::size_t column = 0;
      for (const std::span<const float> part : parts) {
        for (const float value : part.subspan(row * ranks, ranks)) {
          comm_inputs.push_back(normalisation.Apply(column++, value));
        }
      }
    }
    mlp.Run(static_cast<std::int64_t>(end - begin), comm_inputs,
            cost_ms.subspan(begin * ranks, (end - begin) * ranks));
  }
}

// Both directions at one rank count.
class NeuralComm::Bound final : public CommModel {
 public:
  Bound(const PricingConditions& conditions, std::shared_ptr<const Network> forward,
        std::shared_ptr<const Network> backward)
      : conditions_(conditions), forward_(std::move(forward)), backward_(std::move(backward)) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    return VolumeEquivalent(conditions_, shard);
  }

  void BackwardCosts(std::span<const float> loads, std::span<float> cost_ms) const override {
    const std::span<const float> parts[] = {loads};
    Costs(*backward_, parts, cost_ms);
  }

  void ForwardCosts(std::span<const float> loads, std::span<const float> start_offsets_ms,
                    std::span<float> cost_ms) const override {
    const std::span<const float> parts[] = {loads, start_offsets_ms};
    Costs(*forward_, parts, cost_ms);
  }

 private:
  static void Costs(const Network& network, std::span<const std::span<const float>> parts,
                    std::span<float> cost_ms) {
    network.Run(parts, cost_ms);
    for (float& value : cost_ms) value = FiniteCost(value);
  }

  const PricingConditions conditions_;
  const std::shared_ptr<const Network> forward_;
  const std::shared_ptr<const Network> backward_;
};

StatusOr<NeuralComm> NeuralComm::Load(const ModelManifest& manifest,
                                      const std::filesystem::path& directory) {
  NeuralComm comm;
  for (const bool forward : {true, false}) {
    for (const auto& of_count : forward ? manifest.forward_comm : manifest.backward_comm) {
      const int ranks = of_count.num_devices;
      NS_ASSIGN_OR_RETURN(const TensorFile file,
                          ReadNetworkFile(directory / of_count.file, CommNetworkTensors(of_count)));
      const auto network = std::make_shared<const Network>(Network{
          Normalisation(file), MlpNetwork(file, "layer", of_count.layers, DenseActivation::kNone)});
      // The first caller pays for no page faults, and what is not finite here never will be.
      const std::vector<float> dim_sums(static_cast<std::size_t>(ranks), 512.0F);
      const std::vector<float> start_offsets_ms(dim_sums.size(), 0.0F);
      std::vector<float> cost_ms(dim_sums.size());
      const std::span<const float> parts[] = {dim_sums, start_offsets_ms};
      network->Run(std::span(parts).first(forward ? 2 : 1), cost_ms);
      for (const float value : cost_ms) {
        if (std::isfinite(value)) continue;
        return InvalidArgument(
            "{}: {} communication network for {} devices: a trial run gives {}, must be finite",
            directory.string(), forward ? "forward" : "backward", ranks, value);
      }
      (forward ? comm.forward_ : comm.backward_).emplace(ranks, network);
    }
  }
  return comm;
}

std::vector<int> NeuralComm::NumRanks() const {
  std::vector<int> counts;
  for (const auto& [ranks, network] : forward_) {
    if (backward_.contains(ranks)) counts.push_back(ranks);
  }
  return counts;
}

std::shared_ptr<const CommModel> NeuralComm::Bind(const PricingConditions& conditions) const {
  const auto forward = forward_.find(conditions.num_ranks);
  const auto backward = backward_.find(conditions.num_ranks);
  if (forward == forward_.end() || backward == backward_.end()) return nullptr;
  return std::make_shared<const Bound>(conditions, forward->second, backward->second);
}

}  // namespace neuroshard
