// One communication network: the ranks' dim sums (and start offsets) in, a cost for each rank out.
#pragma once

#include <span>
#include <vector>

#include "server/networks/mlp_network.h"
#include "server/networks/model_manifest.h"
#include "server/networks/normalisation.h"

namespace neuroshard {

// Immutable; Run from any thread, which keeps a block of inputs until it ends.
class CommNetwork {
 public:
  // `file` has passed CheckNetworkTensors.
  CommNetwork(const CommNetworkManifest& manifest, const TensorFile& file);

  // `parts` are [n, num_devices] each, and together the inputs: dim sums, then for the forward
  // direction start offsets. cost_ms is [n, num_devices], as the network gives it.
  void Run(std::span<const std::span<const float>> parts, std::span<float> cost_ms) const;

 private:
  std::size_t num_devices_;
  Normalisation normalisation_;
  MlpNetwork mlp_;
};

}  // namespace neuroshard
