#include "server/networks/network_tensors.h"

#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "common/base/violations.h"
#include "server/cost/comm_features.h"

namespace neuroshard {
namespace {

// Weights are not negative on the way of the first `rising` inputs.
void AddLayers(std::string_view prefix, const std::vector<std::int64_t>& widths,
               std::vector<TensorSpec>& specs, std::int64_t rising = 0) {
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    specs.push_back({fmt::format("{}.{}.weight", prefix, i), {widths[i + 1], widths[i]}, rising});
    specs.push_back({fmt::format("{}.{}.bias", prefix, i), {widths[i + 1]}});
    if (rising > 0) rising = widths[i + 1];
  }
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void CheckValues(const std::string& field, bool positive, std::int64_t non_negative_columns,
                 const Tensor& tensor, Violations& violations) {
  const std::size_t columns =
      tensor.shape.empty() ? 1 : static_cast<std::size_t>(tensor.shape.back());
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    const float value = tensor.values[i];
    if (!std::isfinite(value)) {
      violations.Add(field, "value {} is {}, must be finite", i, value);
      return;
    }
    if (positive && value <= 0) {
      violations.Add(field, "value {} is {}, must be above 0", i, value);
      return;
    }
    if (value < 0 && i % columns < static_cast<std::size_t>(non_negative_columns)) {
      violations.Add(field, "value {} is {}, must not be negative", i, value);
      return;
    }
  }
}

}  // namespace

std::int64_t TensorSpec::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<TensorSpec> MemberTensors(const NetworkManifest& network) {
  constexpr auto kKinds = static_cast<std::int64_t>(kCollectiveKinds);
  std::vector<TensorSpec> specs;
  switch (network.kind) {
    case NetworkKind::kTableSum:
      AddLayers("table", network.layers, specs);
      AddLayers("head", network.head_layers, specs);
      break;
    case NetworkKind::kDeviceCount:
      AddLayers("layer", network.layers, specs);
      break;
    case NetworkKind::kUniversalTableSum: {
      const std::int64_t width = network.layers.empty() ? 0 : network.layers.back();
      const std::int64_t hidden = network.head_width();
      const std::int64_t outputs = std::ssize(network.outputs);
      AddLayers("table", network.layers, specs);
      specs.push_back({"hidden.weight", {hidden, width}});
      specs.push_back({"hidden.bias", {hidden}});
      // Not negative: costs are convex in the sum of phi, and positive.
      specs.push_back({"output.weight", {outputs, hidden}, hidden});
      specs.push_back({"linear.weight", {outputs, width}, width});
      specs.push_back({"linear.bias", {outputs}, outputs});
      break;
    }
    case NetworkKind::kUniversalComm:
      // Costs rise with bytes.
      AddLayers("layer", network.layers, specs, kMonotoneCommFeatures);
      specs.push_back({"wait_scale", {kKinds}, kKinds});
      specs.push_back({"floor_ms", {kKinds}, kKinds});
  }
  return specs;
}

std::string MemberPrefix(NetworkKind kind, int member) {
  return IsUniversal(kind) ? fmt::format("member.{}.", member) : "";
}

std::vector<TensorSpec> NetworkTensors(const NetworkManifest& network) {
  std::int64_t inputs = std::ssize(network.features);
  if (network.kind == NetworkKind::kDeviceCount && !network.layers.empty()) {
    inputs = network.layers.front();
  }
  std::vector<TensorSpec> specs = {{"feature_mean", {inputs}}, {"feature_std", {inputs}}};
  for (int member = 0; member < network.members; ++member) {
    for (TensorSpec& spec : MemberTensors(network)) {
      spec.name.insert(0, MemberPrefix(network.kind, member));
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

Status CheckNetworkTensors(const std::vector<TensorSpec>& expected, const TensorFile& file,
                           std::string_view file_name) {
  Violations violations;
  std::map<std::string, bool> known;
  for (const TensorSpec& spec : expected) {
    known[spec.name] = true;
    const std::string field = fmt::format("{}: {}", file_name, spec.name);
    const auto found = file.tensors.find(spec.name);
    if (found == file.tensors.end()) {
      violations.Add(field, "missing");
    } else if (found->second.shape != spec.shape) {
      violations.Add(field, "shape {}, the manifest's layers ask for {}",
                     ShapeText(found->second.shape), ShapeText(spec.shape));
    } else {
      CheckValues(field, spec.name == "feature_std", spec.non_negative_columns, found->second,
                  violations);
    }
  }
  for (const auto& [name, tensor] : file.tensors) {
    if (!known.contains(name)) {
      violations.Add(fmt::format("{}: {}", file_name, name),
                     "unexpected tensor: no layer of the manifest has it");
    }
  }
  return violations.ToStatus();
}

StatusOr<TensorFile> ReadNetworkFile(const std::filesystem::path& directory,
                                     const NetworkManifest& network) {
  const std::filesystem::path path = directory / network.file;
  NS_ASSIGN_OR_RETURN(TensorFile file, ReadTensorFile(path));
  NS_RETURN_IF_ERROR(CheckNetworkTensors(NetworkTensors(network), file, path.string()));
  return file;
}

}  // namespace neuroshard
