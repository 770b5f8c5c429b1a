#include "server/cost/neural/comm_network.h"

#include <cassert>

namespace neuroshard {

CommNetwork::CommNetwork(const CommNetworkManifest& manifest, const TensorFile& file)
    : num_devices_(static_cast<std::size_t>(manifest.num_devices)),
      normalisation_(file),
      mlp_(file, "layer", manifest.layers, LastLayer::kLinear) {}

void CommNetwork::Run(std::span<const std::span<const float>> parts,
                      std::span<float> cost_ms) const {
  assert(parts.size() * num_devices_ == static_cast<std::size_t>(mlp_.input_width()));
  const std::size_t n = cost_ms.size() / num_devices_;
  std::vector<float> inputs;
  inputs.reserve(n * parts.size() * num_devices_);
  for (std::size_t row = 0; row < n; ++row) {
    std::size_t column = 0;
    for (const std::span<const float> part : parts) {
      for (const float value : part.subspan(row * num_devices_, num_devices_)) {
        inputs.push_back(normalisation_.Apply(column++, value));
      }
    }
  }
  mlp_.Run(static_cast<std::int64_t>(n), inputs, cost_ms);
}

}  // namespace neuroshard
