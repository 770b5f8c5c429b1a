// Names and shapes of the tensors in a network's safetensors file, shared by writers and readers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "server/networks/model_manifest.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

// Name and shape of a tensor.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  // Number of leading columns of a matrix whose values may not be negative; for a vector any
  // positive number means all of its values.
  std::int64_t non_negative_columns = 0;

  // Returns the number of its values.
  std::int64_t count() const;
  bool operator==(const TensorSpec&) const = default;
};

// Tensors of NeuroShard's compute network: feature_mean [F], feature_std [F], table.<i>.weight
// [out, in], table.<i>.bias [out], head.<i>.weight, head.<i>.bias.
std::vector<TensorSpec> ComputeNetworkTensors(const ComputeNetworkManifest& network);

// Tensors of NeuroShard's communication network: feature_mean, feature_std, layer.<i>.weight [out,
// in], layer.<i>.bias [out].
std::vector<TensorSpec> CommNetworkTensors(const CommNetworkManifest& network);

// Tensors of a universal compute network: feature_mean, feature_std; for each member m:
// member.<m>.table.<i>.weight and .bias, member.<m>.hidden.weight [H, K] and .bias [H],
// member.<m>.output.weight [O, H], member.<m>.linear.weight [O, K] and .bias [O].
std::vector<TensorSpec> UniversalComputeTensors(const UniversalComputeManifest& network);

// Tensors of a universal communication network: feature_mean, feature_std; for each member m:
// member.<m>.layer.<i>.weight and .bias, member.<m>.wait_scale and member.<m>.floor_ms [5].
std::vector<TensorSpec> UniversalCommTensors(const UniversalCommManifest& network);

// Returns INVALID_ARGUMENT with all faults, each with `file_name` and the tensor: a tensor that is
// missing, unexpected or of another shape, values that are NaN, infinite, or negative where none
// may be, or a feature_std that is not positive.
Status CheckNetworkTensors(const std::vector<TensorSpec>& expected, const TensorFile& file,
                           std::string_view file_name);

// Reads and checks a file. Errors are those of ReadTensorFile and CheckNetworkTensors.
StatusOr<TensorFile> ReadNetworkFile(const std::filesystem::path& path,
                                     const std::vector<TensorSpec>& expected);

}  // namespace neuroshard
