#include "server/models/network_tensors.h"

#include <cmath>

#include "common/base/violations.h"

namespace neuroshard {
namespace {

void AddNormalisation(std::int64_t inputs, std::vector<TensorSpec>& specs) {
  specs.push_back({"feature_mean", {inputs}});
  specs.push_back({"feature_std", {inputs}});
}

void AddLayers(std::string_view prefix, const std::vector<std::int64_t>& widths,
               std::vector<TensorSpec>& specs) {
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    specs.push_back({fmt::format("{}.{}.weight", prefix, i), {widths[i + 1], widths[i]}});
    specs.push_back({fmt::format("{}.{}.bias", prefix, i), {widths[i + 1]}});
  }
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void CheckValues(const std::string& field, bool positive, const Tensor& tensor,
                 Violations& violations) {
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    const float value = tensor.values[i];
    if (!std::isfinite(value)) {
      violations.Add(field, fmt::format("value {} is {}, must be finite", i, value));
      return;
    }
    if (positive && value <= 0) {
      violations.Add(field, fmt::format("value {} is {}, must be above 0", i, value));
      return;
    }
  }
}

}  // namespace

std::vector<TensorSpec> ComputeNetworkTensors(const ComputeNetworkManifest& network) {
  std::vector<TensorSpec> specs;
  AddNormalisation(static_cast<std::int64_t>(network.features.size()), specs);
  AddLayers("table", network.table_layers, specs);
  AddLayers("head", network.head_layers, specs);
  return specs;
}

std::vector<TensorSpec> CommNetworkTensors(const CommNetworkManifest& network) {
  std::vector<TensorSpec> specs;
  AddNormalisation(network.layers.empty() ? 0 : network.layers.front(), specs);
  AddLayers("layer", network.layers, specs);
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
      violations.Add(field, fmt::format("shape {}, the manifest's layers ask for {}",
                                        ShapeText(found->second.shape), ShapeText(spec.shape)));
    } else {
      CheckValues(field, spec.name == "feature_std", found->second, violations);
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

}  // namespace neuroshard
