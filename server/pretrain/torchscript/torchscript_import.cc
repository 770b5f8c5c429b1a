#include "server/pretrain/torchscript/torchscript_import.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/violations.h"
#include "server/cost/feature_columns.h"
#include "server/models/model_directory.h"
#include "server/models/model_manifest.h"
#include "server/pretrain/torchscript/feature_statistics_file.h"
#include "server/pretrain/torchscript/matched_network.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

// One file of the command on its way into the model.
struct NetworkImport {
  std::string key;  // in statistics and provenance: "compute", "forward_comm.4"
  std::string path;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  int num_devices = 0;  // 0: compute
  std::optional<ScriptedNetwork> network;
  FeatureStatistics statistics;
  MatchedNetwork matched;
};

std::vector<NetworkImport> ListNetworks(const ImportTorchScriptCommand& command,
                                        std::size_t num_features) {
  std::vector<NetworkImport> networks;
  const auto add = [&](std::string key, const std::string& path, std::size_t inputs,
                       std::size_t outputs, int num_devices) {
    NetworkImport& network = networks.emplace_back();
    network.key = std::move(key);
    network.path = path;
    network.inputs = static_cast<std::int64_t>(inputs);
    network.outputs = static_cast<std::int64_t>(outputs);
    network.num_devices = num_devices;
  };
  add("compute", command.compute, num_features, command.outputs.size(), 0);
  for (const auto& [devices, path] : command.forward_comm) {
    const auto width = static_cast<std::size_t>(devices);
    add(fmt::format("forward_comm.{}", devices), path, 2 * width, width, devices);
  }
  for (const auto& [devices, path] : command.backward_comm) {
    const auto width = static_cast<std::size_t>(devices);
    add(fmt::format("backward_comm.{}", devices), path, width, width, devices);
  }
  return networks;
}

// Faults of `status`, one by one where it has several, as those of `path`.
void AddFaults(const std::string& path, const Status& status, Violations& violations) {
  const auto several = Violations::FromStatus(status);
  for (const Violation& violation : several) {
    violations.Add(fmt::format("{}: {}", path, violation.field), violation.description);
  }
  if (several.empty() && !status.ok()) violations.Add(path, Message(status));
}

void LoadNetwork(const FeatureStatisticsFile& statistics, NetworkImport& import,
                 Violations& violations) {
  auto loaded = ScriptedNetwork::Load(import.path);
  if (!loaded.ok()) return AddFaults(import.path, loaded.status(), violations);
  Violations faults;
  CheckLayerChain(*loaded, import.inputs, import.outputs, faults);
  auto found = statistics.Of(import.key, import.inputs, loaded->statistics(), faults);
  AddFaults(import.path, faults.ToStatus(), violations);
  import.statistics = std::move(found);
  import.network.emplace(*std::move(loaded));
}

struct ImportedFiles {
  ModelManifest manifest;
  std::map<std::string, TensorFile> files;
};

ImportedFiles MakeImportedFiles(const ImportTorchScriptCommand& command,
                                const ModelLocation& location,
                                const std::vector<std::string>& features,
                                const std::vector<NetworkImport>& networks,
                                std::int64_t now_unix_ms) {
  ImportedFiles result;
  ModelManifest& manifest = result.manifest;
  manifest.name = location.name;
  manifest.version = location.version;
  manifest.device = command.device;
  manifest.backend = command.backend;
  manifest.collective_backend = command.collective_backend;
  manifest.global_batch_size = command.batch_size;
  manifest.weight_dtype = command.weight_dtype;
  manifest.optimizer = command.optimizer;
  manifest.provenance = {
      {"imported_by", "neuroshard-pretrain import-torchscript"},
      {"imported_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                  fmt::gmtime(static_cast<std::time_t>(now_unix_ms / 1000)))}};
  for (const NetworkImport& network : networks) {
    const MatchedNetwork& matched = network.matched;
    manifest.provenance[network.key + ".file"] = fs::path(network.path).filename().string();
    manifest.provenance[network.key + ".largest_difference"] =
        fmt::format("{:.2g}", matched.largest_difference);
    std::string file = network.key + ".safetensors";
    std::replace(file.begin(), file.end() - 12, '.', '_');
    result.files[file] = matched.file;
    if (network.num_devices == 0) {
      manifest.compute.file = file;
      manifest.compute.features = features;
      for (const std::string& feature : command.log1p) {
        manifest.compute.transforms[feature] = "log1p";
      }
      manifest.compute.table_layers = matched.table_layers;
      manifest.compute.head_layers = matched.head_layers;
      manifest.compute.outputs = command.outputs;
    } else {
      const bool forward = network.key.starts_with("forward");
      (forward ? manifest.forward_comm : manifest.backward_comm)
          .push_back({file, network.num_devices, matched.head_layers});
    }
  }
  return result;
}

void PrintImport(const CommandContext& context, OutputFormat format,
                 const std::vector<NetworkImport>& networks, const ModelLocation& location) {
  if (format == OutputFormat::kJson) {
    nlohmann::ordered_json listed = nlohmann::ordered_json::array();
    for (const NetworkImport& network : networks) {
      listed.push_back({{"network", network.key},
                        {"table_layers", network.matched.table_layers},
                        {"layers", network.matched.head_layers},
                        {"largest_difference", network.matched.largest_difference}});
    }
    const nlohmann::ordered_json all = {{"model", location.directory.string()},
                                        {"networks", listed}};
    fmt::print(context.out, "{}\n",
               all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  for (const NetworkImport& network : networks) {
    const MatchedNetwork& matched = network.matched;
    const std::string phi = matched.table_layers.empty()
                                ? ""
                                : fmt::format("{}, sum, ", fmt::join(matched.table_layers, "-"));
    fmt::print(context.out, "{:<18} {}{}; largest difference from the module {:.1e}\n", network.key,
               phi, fmt::join(matched.head_layers, "-"), matched.largest_difference);
  }
  fmt::print(context.out, "written: {}\n", location.directory.string());
}

}  // namespace

Status RunImportTorchScript(const ImportTorchScriptCommand& command,
                            const CommandContext& context) {
  NS_ASSIGN_OR_RETURN(const ModelLocation location,
                      LocateModel(command.model_directory, command.existing));
  const std::vector<std::string> features =
      command.features.empty() ? NeuroShardFeatureNames() : command.features;
  NS_ASSIGN_OR_RETURN(const FeatureStatisticsFile statistics,
                      FeatureStatisticsFile::Read(command.statistics));
  std::vector<NetworkImport> networks = ListNetworks(command, features.size());
  Violations violations;
  for (NetworkImport& network : networks) LoadNetwork(statistics, network, violations);
  for (const std::string& key : statistics.keys()) {
    const bool used = std::any_of(networks.begin(), networks.end(),
                                  [&](const NetworkImport& network) { return network.key == key; });
    if (!used) violations.Add(fmt::format("{}: {}", command.statistics, key), "no such network");
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  for (NetworkImport& network : networks) {
    auto matched =
        network.num_devices == 0
            ? MatchComputeNetwork(*network.network, network.statistics, command.table_layers)
            : MatchCommNetwork(*network.network, network.statistics);
    AddFaults(network.path, matched.status(), violations);
    if (matched.ok()) network.matched = *std::move(matched);
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  const ImportedFiles model =
      MakeImportedFiles(command, location, features, networks, context.now_unix_ms);
  NS_RETURN_IF_ERROR(PublishDirectory(location, command.existing, [&](const fs::path& staged) {
    return WriteModelDirectory(staged, model.manifest, model.files);
  }));
  PrintImport(context, command.format, networks, location);
  return absl::OkStatus();
}

}  // namespace neuroshard
