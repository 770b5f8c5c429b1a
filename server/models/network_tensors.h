// Which tensors a network's safetensors file holds: the one list that writers and readers share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/models/model_manifest.h"
#include "server/models/safetensors.h"

namespace neuroshard {

struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;

  bool operator==(const TensorSpec&) const = default;
};

// feature_mean [F], feature_std [F], table.<i>.weight [out, in], table.<i>.bias [out],
// head.<i>.weight, head.<i>.bias.
std::vector<TensorSpec> ComputeNetworkTensors(const ComputeNetworkManifest& network);

// feature_mean, feature_std, layer.<i>.weight [out, in], layer.<i>.bias [out].
std::vector<TensorSpec> CommNetworkTensors(const CommNetworkManifest& network);

// All faults at once (INVALID_ARGUMENT, each with `file_name` and the tensor): a tensor missing,
// unexpected, of another shape, with NaN or infinite values, or a feature_std that is not positive.
Status CheckNetworkTensors(const std::vector<TensorSpec>& expected, const TensorFile& file,
                           std::string_view file_name);

}  // namespace neuroshard
