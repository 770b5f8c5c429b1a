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

// Returns the tensors of one member of a network, in the order of training's parameters, without its
// prefix:
// - kTableSum: table.<i>.weight [out, in], table.<i>.bias [out], head.<i>.weight, head.<i>.bias;
// - kDeviceCount: layer.<i>.weight, layer.<i>.bias;
// - kUniversalTableSum: table.<i>.weight, table.<i>.bias, hidden.weight [H, K], hidden.bias [H],
//   output.weight [O, H], linear.weight [O, K], linear.bias [O];
// - kUniversalComm: layer.<i>.weight, layer.<i>.bias, wait_scale [5], floor_ms [5].
std::vector<TensorSpec> MemberTensors(const NetworkManifest& network);

// Returns the prefix of the names of a member's tensors: "member.<m>."; the paper's networks, which
// have one member, have none.
std::string MemberPrefix(NetworkKind kind, int member);

// Returns the tensors of a network's file: feature_mean [inputs], feature_std [inputs], and those of
// each member.
std::vector<TensorSpec> NetworkTensors(const NetworkManifest& network);

// Returns INVALID_ARGUMENT with all faults, each with `file_name` and the tensor: a tensor that is
// missing, unexpected or of another shape, values that are NaN, infinite, or negative where none
// may be, or a feature_std that is not positive.
Status CheckNetworkTensors(const std::vector<TensorSpec>& expected, const TensorFile& file,
                           std::string_view file_name);

// Reads and checks the network's file in `directory`. Errors are those of ReadTensorFile and
// CheckNetworkTensors.
StatusOr<TensorFile> ReadNetworkFile(const std::filesystem::path& directory,
                                     const NetworkManifest& network);

}  // namespace neuroshard
