// From a TorchScript module to the tensors of a cost model's network, and the proof that both
// compute the same.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/base/violations.h"
#include "server/models/safetensors.h"
#include "server/pretrain/torchscript/scripted_network.h"

namespace neuroshard {

// The largest difference that may be: relative to the larger of the two values, and at least to a
// tenth of the largest value of all that were compared.
inline constexpr double kLargestDifference = 1e-4;

struct MatchedNetwork {
  TensorFile file;
  std::vector<std::int64_t> table_layers;  // widths of phi; empty: the network sums nothing
  std::vector<std::int64_t> head_layers;   // widths behind the sum, or of all layers
  double largest_difference = 0;           // relative, of all values that were compared
};

// Adds every place where the Linear layers, in their order, do not lead from `inputs` to `outputs`
// columns.
void CheckLayerChain(const ScriptedNetwork& network, std::int64_t inputs, std::int64_t outputs,
                     Violations& violations);

// Of a network whose layers have passed CheckLayerChain, and statistics for its inputs: runs the
// module and the planner's own forward pass on the same random inputs, in each way in which the
// module can be called. INVALID_ARGUMENT, with the input and the values that are furthest apart,
// unless they agree.
//
// Compute: sets of 1 to 17 rows. `table_layers` says how many Linear layers come before the sum;
// without it every place is tried, and it is an error if not exactly one agrees.
StatusOr<MatchedNetwork> MatchComputeNetwork(const ScriptedNetwork& network,
                                             const FeatureStatistics& statistics,
                                             std::optional<int> table_layers);
StatusOr<MatchedNetwork> MatchCommNetwork(const ScriptedNetwork& network,
                                          const FeatureStatistics& statistics);

}  // namespace neuroshard
