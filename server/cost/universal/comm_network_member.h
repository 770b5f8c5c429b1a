// One member of a universal communication network.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "server/cost/comm_features.h"
#include "server/models/safetensors.h"

namespace neuroshard {

// cost = wait_scale[c] x wait + floor_ms[c] + exp(clamp(net(z), -20, 12)) of a rank in collective
// c. After each layer of net but the last, the first half of the units (rounded up) is relu(x), the
// rest min(x, 0): with weights that are not negative behind the rising features the cost rises with
// bytes, and is neither convex nor concave in them. Immutable; any thread; asks for no memory.
class CommNetworkMember {
 public:
  // Tensors "<prefix>.layer.<i>.weight" ... of a file that CheckNetworkTensors has passed with
  // UniversalCommTensors; `layers` at most kMaxCommLayerWidth wide.
  CommNetworkMember(const TensorFile& file, const std::string& prefix,
                    const std::vector<std::int64_t>& layers);

  // Of one collective: a row of features and a wait for each rank, as CommFeaturesOf gives them.
  void Costs(CollectiveKind kind, std::span<const CommFeatureRow> rows,
             std::span<const double> wait_ms, std::span<double> cost_ms) const;

 private:
  struct Layer {
    std::size_t in;
    std::size_t out;
    std::vector<double> weight;  // [in, out]; the first one has z's mean and std worked in
    std::vector<double> bias;

    // y += x times the weights of input k.
    void Add(std::size_t k, double x, double* y) const {
      const double* of_input = weight.data() + k * out;
      for (std::size_t o = 0; o < out; ++o) y[o] += x * of_input[o];
    }
  };

  std::vector<Layer> layers_;
  std::array<double, kCollectiveKinds> wait_scale_{};
  std::array<double, kCollectiveKinds> floor_ms_{};
};

}  // namespace neuroshard
