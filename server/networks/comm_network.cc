#include "server/networks/comm_network.h"

#include <algorithm>
#include <cassert>

namespace neuroshard {
namespace {

thread_local std::vector<float> block_inputs;

}  // namespace

CommNetwork::CommNetwork(const CommNetworkManifest& manifest, const TensorFile& file)
    : num_devices_(static_cast<std::size_t>(manifest.num_devices)),
      normalisation_(file),
      mlp_(file, "layer", manifest.layers, DenseActivation::kNone) {}

void CommNetwork::Run(std::span<const std::span<const float>> parts,
                      std::span<float> cost_ms) const {
  assert(parts.size() * num_devices_ == static_cast<std::size_t>(mlp_.input_width()));
  constexpr std::size_t kBlockRows = 1024;  // whose inputs are laid out together
  const std::size_t rows = cost_ms.size() / num_devices_;
  for (std::size_t begin = 0; begin < rows; begin += kBlockRows) {
    const std::size_t end = std::min(begin + kBlockRows, rows);
    block_inputs.clear();
    for (std::size_t row = begin; row < end; ++row) {
      std::size_t column = 0;
      for (const std::span<const float> part : parts) {
        for (const float value : part.subspan(row * num_devices_, num_devices_)) {
          block_inputs.push_back(normalisation_.Apply(column++, value));
        }
      }
    }
    mlp_.Run(static_cast<std::int64_t>(end - begin), block_inputs,
             cost_ms.subspan(begin * num_devices_, (end - begin) * num_devices_));
  }
}

}  // namespace neuroshard
