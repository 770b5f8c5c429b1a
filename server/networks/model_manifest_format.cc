#include <yaml-cpp/yaml.h>

#include "server/networks/casts_section.h"
#include "server/networks/fabric_file.h"
#include "server/networks/input_dist_section.h"
#include "server/networks/manifest_fields.h"
#include "server/networks/model_manifest.h"
#include "server/networks/universal_sections.h"

namespace neuroshard {
namespace {

using Details = std::map<std::string, std::string>;

void EmitText(YAML::Emitter& out, const std::string& key, const std::string& value) {
  if (!value.empty()) EmitScalar(out, key, value);
}

// A key that is a value and also the start of another's path cannot be a mapping.
bool CanNest(const Details& details) {
  for (const auto& [key, value] : details) {
    for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
      if (details.contains(key.substr(0, dot))) return false;
    }
  }
  return true;
}

// The entries whose keys start with `prefix`, as one mapping; a level for each dot after it.
void EmitNested(YAML::Emitter& out, const Details& details, const std::string& prefix) {
  out << YAML::BeginMap;
  std::string written;
  for (auto it = details.lower_bound(prefix); it != details.end() && it->first.starts_with(prefix);
       ++it) {
    const std::string rest = it->first.substr(prefix.size());
    const std::size_t dot = rest.find('.');
    const std::string key = rest.substr(0, dot);
    if (dot == std::string::npos) {
      EmitScalar(out, key, it->second);
    } else if (key + "." != written) {
      written = key + ".";
      out << YAML::Key << key << YAML::Value;
      EmitNested(out, details, prefix + written);
    }
  }
  out << YAML::EndMap;
}

void EmitDetails(YAML::Emitter& out, const std::string& key, const Details& details) {
  if (details.empty()) return;
  out << YAML::Key << key << YAML::Value;
  if (CanNest(details)) {
    EmitNested(out, details, "");
    return;
  }
  out << YAML::BeginMap;
  for (const auto& [path, value] : details) EmitScalar(out, path, value);
  out << YAML::EndMap;
}

void EmitCompute(YAML::Emitter& out, const ComputeNetworkManifest& compute) {
  out << YAML::Key << "compute" << YAML::Value << YAML::BeginMap;
  EmitScalar(out, "file", compute.file);
  EmitScalar(out, "kind", "table_sum_mlp");
  EmitList(out, "features", compute.features);
  if (!compute.transforms.empty()) {
    out << YAML::Key << "transforms" << YAML::Value << YAML::Flow << compute.transforms;
  }
  EmitList(out, "table_layers", compute.table_layers);
  EmitList(out, "head_layers", compute.head_layers);
  EmitList(out, "outputs", compute.outputs);
  out << YAML::EndMap;
}

void EmitComm(YAML::Emitter& out, const std::string& key,
              const std::vector<CommNetworkManifest>& networks) {
  if (networks.empty()) return;
  out << YAML::Key << key << YAML::Value << YAML::BeginSeq;
  for (const CommNetworkManifest& network : networks) {
    out << YAML::BeginMap;
    EmitScalar(out, "file", network.file);
    EmitScalar(out, "kind", "device_count_mlp");
    EmitScalar(out, "num_devices", network.num_devices);
    EmitList(out, "layers", network.layers);
    out << YAML::EndMap;
  }
  out << YAML::EndSeq;
}

void EmitHardwareAndConditions(YAML::Emitter& out, const ModelManifest& manifest) {
  if (!manifest.device.empty() || !manifest.backend.empty() ||
      !manifest.collective_backend.empty() || !manifest.collective_cadence.empty()) {
    out << YAML::Key << "hardware" << YAML::Value << YAML::BeginMap;
    EmitText(out, "device", manifest.device);
    EmitText(out, "backend", manifest.backend);
    EmitText(out, "collective_backend", manifest.collective_backend);
    EmitText(out, "collective_cadence", manifest.collective_cadence);
    out << YAML::EndMap;
  }
  if (manifest.global_batch_size != 0 || !manifest.weight_dtype.empty() ||
      !manifest.optimizer.empty()) {
    out << YAML::Key << "conditions" << YAML::Value << YAML::BeginMap;
    if (manifest.global_batch_size != 0) {
      EmitScalar(out, "global_batch_size", manifest.global_batch_size);
    }
    EmitText(out, "weight_dtype", manifest.weight_dtype);
    EmitText(out, "optimizer", manifest.optimizer);
    out << YAML::EndMap;
  }
}

}  // namespace

StatusOr<std::string> FormatModelManifest(const ModelManifest& manifest) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  EmitScalar(out, "format", fmt::format("{}/{}", kModelFormat, manifest.files_listed ? 2 : 1));
  EmitScalar(out, "name", manifest.name);
  EmitScalar(out, "version", manifest.version);
  EmitHardwareAndConditions(out, manifest);
  if (manifest.trained_on) EmitTrainedOn(out, *manifest.trained_on);
  if (!manifest.unusable_reason.empty()) {
    out << YAML::Key << "quality" << YAML::Value << YAML::BeginMap;
    EmitScalar(out, "usable", "false");
    EmitScalar(out, "reason", manifest.unusable_reason);
    out << YAML::EndMap;
  }
  if (manifest.universal) {
    EmitUniversalCompute(out, *manifest.universal);
  } else {
    EmitCompute(out, manifest.compute);
  }
  if (manifest.comm) EmitUniversalComm(out, *manifest.comm);
  if (manifest.input_dist) EmitInputDist(out, *manifest.input_dist);
  if (manifest.casts != MeasuredCasts()) EmitCasts(out, manifest.casts);
  if (manifest.fabric) EmitFabricSection(out, *manifest.fabric);
  EmitComm(out, "forward_comm", manifest.forward_comm);
  EmitComm(out, "backward_comm", manifest.backward_comm);
  EmitDetails(out, "provenance", manifest.provenance);
  EmitDetails(out, "metrics", manifest.metrics);
  out << YAML::EndMap;
  if (!out.good()) return Internal("YAML cannot be written: {}", out.GetLastError());

  std::string text = std::string(out.c_str()) + "\n";
  StatusOr<ModelManifest> read_back = ParseModelManifest(text);
  if (!read_back.ok()) return read_back.status();
  read_back->drift = manifest.drift;
  read_back->digest = manifest.digest;
  if (*read_back != manifest) {
    return InvalidArgument(
        "model {}/{}: the manifest does not read back as it was; networks have "
        "to be in ascending order of num_devices and texts free of NUL",
        manifest.name, manifest.version);
  }
  return text;
}

}  // namespace neuroshard
