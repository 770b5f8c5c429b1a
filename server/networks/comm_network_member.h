// One member of a universal communication network.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "server/cost/comm_features.h"
#include "server/networks/dense_layer.h"
#include "server/networks/normalisation.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

// cost = wait_scale[c] x wait + floor_ms[c] + exp(clamp(net(z), -20, 12)) of a rank in collective
// c. After each layer of net but the last, the first half of the units (rounded up) is relu(x), the
// rest min(x, 0): with weights that are not negative behind the rising features the cost rises with
// bytes, and is neither convex nor concave in them. Immutable; any thread; asks for no memory once
// a thread has called it with as many rows.
class CommNetworkMember {
 public:
  // Tensors "<prefix>.layer.<i>.weight" ... of a file that CheckNetworkTensors has passed with
  // UniversalCommTensors.
  CommNetworkMember(const TensorFile& file, const std::string& prefix,
                    const std::vector<std::int64_t>& layers);

  // A row of features and a wait for each rank, as CommFeaturesOf gives them, of any number of
  // collectives of one kind.
  void Costs(CollectiveKind kind, std::span<const CommFeatureRow> rows,
             std::span<const double> wait_ms, std::span<double> cost_ms) const;

 private:
  Normalisation normalisation_;
  std::vector<DenseLayer> layers_;
  std::array<double, kCollectiveKinds> wait_scale_{};
  std::array<double, kCollectiveKinds> floor_ms_{};
};

}  // namespace neuroshard
